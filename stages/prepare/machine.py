"""What a run ran with: versions of the libraries, the machine, and what `compute` comes to on it. Nothing is imported
to find out: torch alone takes seconds.
"""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from stages.common.cores import available_cores
from stages.common.params import Compute

LIBRARIES = (
    *("torch", "transformers", "tokenizers", "peft", "safetensors", "numpy"),
    *("accelerate", "gguf", "polars", "dvc", "prefect", "pydantic", "jinja2", "httpx"),
    *(
        "datasets",
        "reasoning-gym",
        "math-verify",
        "sympy",
        "latex2sympy2_extended",
    ),  # prompts and rewards may need them
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
    """Device, precision and threads as `auto` comes out, null where only torch could tell: one built for CUDA
    finds a GPU or not. What it finds, `prepare policy` writes down (runtime.json).
    """
    device: str | None = compute.device
    if device == "auto":
        device = "cpu" if (version_of("torch") or "").endswith("+cpu") else None
    dtype: str | None = compute.dtype
    if dtype == "auto":
        dtype = None if device is None else ("bfloat16" if device.startswith("cuda") else "float32")
    threads = available_cores() if compute.threads == "auto" else compute.threads
    return {"device": device, "dtype": dtype, "threads": threads}
