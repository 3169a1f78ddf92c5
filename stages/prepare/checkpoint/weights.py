"""The weight files of a model folder, by their headers: whole or not, and in which precision. No tensor is read."""

import json
from pathlib import Path
from typing import Any

import torch

from stages.common.params import ParamsError

SINGLE, SHARDED = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_SHARDED = "pytorch_model.bin", "pytorch_model.bin.index.json"
POINTER = b"version https://git-lfs"
LENGTH = 8  # bytes before the header of a safetensors file, which tell its length
PRECISIONS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights, in the order in which transformers looks; all are there."""
    for single, index in ((SINGLE, SHARDED), (PICKLED, PICKLED_SHARDED)):
        if (folder / single).exists():
            return [folder / single]
        if (folder / index).exists():
            return _shards(folder / index)
    raise ParamsError(
        f"{folder}: no weights: there is neither {SINGLE} nor {SHARDED}, nor {PICKLED}; copy them there too"
    )


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParamsError(f"{index}: not an index of weights: {error!r}; copy it again") from None
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise ParamsError(f"{index} names {', '.join(missing)}, not there: {len(missing)} of {len(names)} files")
    return [index.parent / name for name in names]


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file, its tensors by name; a ParamsError if the file is not whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(LENGTH)
        length = int.from_bytes(start, "little")
        if start + file.read(len(POINTER) - LENGTH) == POINTER:
            raise ParamsError(f"{path}: a pointer of Git LFS, not the weights; `git lfs pull` fetches them")
        file.seek(LENGTH)
        text = file.read(length) if length <= size else b""
    try:
        found: dict[str, Any] = json.loads(text)
        tensors = {name: tensor for name, tensor in found.items() if name != "__metadata__"}
        end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise ParamsError(f"{path}: not a safetensors file, or only its beginning; copy it again") from None
    if LENGTH + length + end != size:
        raise ParamsError(f"{path}: {size} bytes, its header speaks of {LENGTH + length + end}; copy it again")
    return tensors


def stored_dtype(files: list[Path]) -> torch.dtype | None:
    """Precision of the weights, of several the widest; null: the files are pickled, which only loading tells."""
    if files[0].suffix != ".safetensors":
        return None
    kinds = {tensor["dtype"] for path in files for tensor in header(path).values()}
    known = [PRECISIONS[kind] for kind in kinds if kind in PRECISIONS]
    if not known:
        raise ParamsError(f"{files[0]}: its weights are {', '.join(sorted(kinds)) or 'none'}, which cannot be trained")
    return max(known, key=lambda dtype: (dtype.itemsize, str(dtype)))
