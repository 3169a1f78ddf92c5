"""The hash of everything that a kept result depends on: it is found again only where all of it is the same.

What was computed from (weights, tokens, seeds, tables, options), on what (device, precision, threads, kind of
processor), and by what: the code of the rooms at work, Python, and the libraries that compute.
"""

import json
import platform
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from weakref import WeakKeyDictionary

import polars as pl
import torch

from stages.common.body import is_compiled
from stages.common.linear import uses_onednn

LIBRARIES = ("torch", "transformers", "peft", "numpy", "polars", "safetensors")

_weights: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def key_of(code: Mapping[str, str], model: Any, content: Mapping[str, Any]) -> str:
    """32 hexadecimal digits. `code`: hashes of the rooms; `content`: JSON."""
    parts = {"code": code, "weights": identity_of(model), "on": runtime_of(model), "by": versions(), "of": content}
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def runtime_of(model: Any) -> dict[str, Any]:
    parameter = next(model.parameters())
    on_gpu = parameter.device.type == "cuda"
    return {
        "device": str(parameter.device),
        "gpu": torch.cuda.get_device_name(parameter.device) if on_gpu else None,
        "dtype": str(parameter.dtype),
        "onednn": uses_onednn(model),
        "compiled": is_compiled(model),
        "threads": torch.get_num_threads(),
        "processor": [platform.machine(), torch.backends.cpu.get_cpu_capability()],
    }


@lru_cache
def versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def identify(model: Any, weights: str | None) -> None:
    """Note the hash of the files whose weights the model has now; None: it is being changed, and has no files."""
    if weights is None:
        _weights.pop(model, None)
    else:
        _weights[model] = weights


def noted_identity(model: Any) -> str | None:
    """The hash that was noted, if any."""
    return _weights.get(model)


def identity_of(model: Any) -> str:
    """The hash that was noted, or else that of the weights in memory."""
    return noted_identity(model) or weights_hash(model)


def weights_hash(model: Any) -> str:
    """Over the config, and name, type, shape and bytes of each parameter and buffer."""
    digest = blake2b(digest_size=16)
    adapters = {name: config.to_dict() for name, config in getattr(model, "peft_config", {}).items()}
    digest.update(json.dumps([model.config.to_dict(), adapters], sort_keys=True, default=_plain).encode())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        add_tensor(digest, name, tensor)
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def add_tensor(digest: Any, name: str, tensor: torch.Tensor) -> None:
    digest.update(f"{name}\0{tensor.dtype}\0{list(tensor.shape)}\0".encode())
    if tensor.numel():
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def frame_hash(frame: pl.DataFrame) -> str:
    """Over names, types and values, in the order of the rows."""
    digest = blake2b(str(frame.schema).encode(), digest_size=16)
    digest.update(frame.write_ndjson().encode())
    return digest.hexdigest()
