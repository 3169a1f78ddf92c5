"""What a run ran with: versions of the libraries, the machine, and what `compute` comes to on it. Nothing is imported
to find out: torch alone takes seconds.
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from stages.common.params import Compute

LIBRARIES = (
    *("torch", "transformers", "tokenizers", "peft", "safetensors", "numpy"),
    *("polars", "dvc", "prefect", "pydantic", "jinja2", "gguf"),
)


def versions(names: tuple[str, ...] = LIBRARIES) -> dict[str, str | None]:
    """By name; null where a library is not installed."""
    return {name: version_of(name) for name in names}


def version_of(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, str]:
    return {"python": platform.python_version(), "platform": platform.platform(), "processor": platform.machine()}


def resolved(compute: Compute) -> dict[str, Any]:
    """Device and precision as `auto` comes out, null where only torch could tell; a torch built for the CPU tells."""
    device: str | None = compute.device
    if device == "auto":
        device = "cpu" if (version_of("torch") or "").endswith("+cpu") else None
    dtype: str | None = compute.dtype
    if dtype == "auto":
        dtype = None if device is None else ("bfloat16" if device.startswith("cuda") else "float32")
    return {"device": device, "dtype": dtype, "threads": compute.threads}
