"""A kept file: tensors in safetensors, with notes, and a hash over all of it that is checked when it is read.

Renamed into place when it is whole. A file that was cut off, or whose bytes have changed, is removed and counts as not
there: so does one that carries another key than the folder's.
"""

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from stages.common.kept.key import add_tensor
from stages.common.paths import PARTIAL
from stages.common.processes import own_identity

SUFFIX = ".safetensors"


def hash_of(key: str, notes: str, tensors: Mapping[str, Tensor]) -> str:
    digest = blake2b(f"{key}\0{notes}\0".encode(), digest_size=16)
    for name in sorted(tensors):
        add_tensor(digest, name, tensors[name])
    return digest.hexdigest()


def write_shard(path: Path, key: str, notes: Any, tensors: Mapping[str, Tensor]) -> None:
    """`notes`: JSON. What goes wrong is raised, and leaves nothing behind."""
    scratch = PARTIAL / f"{own_identity()}.kept.{path.parent.name}.{path.name}"
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(notes)
    try:
        scratch.parent.mkdir(parents=True, exist_ok=True)
        save_file(held, scratch, metadata={"key": key, "notes": text, "hash": hash_of(key, text, held)})
        with scratch.open("rb") as file:
            os.fsync(file.fileno())  # or the machine's end leaves an empty file where an older one was whole
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def read_shard(path: Path, key: str) -> tuple[Any, dict[str, Tensor]] | None:
    """Notes and tensors, or None where the file is damaged; it is then removed."""
    try:
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata()
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        if metadata["key"] == key and metadata["hash"] == hash_of(key, metadata["notes"], tensors):
            return json.loads(metadata["notes"]), tensors
    except Exception:  # whatever a damaged header makes the library say; it has an error of its own for most of it
        pass
    path.unlink(missing_ok=True)
    return None
