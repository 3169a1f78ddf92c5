"""Device, precision, threads, determinism and memory, set once per process before a model is loaded."""

import os
from dataclasses import dataclass

import torch

from stages.common import linear
from stages.common.cores import available_cores
from stages.common.memory import keep_freed
from stages.common.params import Compute, ParamsError


@dataclass(frozen=True)
class Runtime:
    """The resolved device and precision of this process, whether linear layers are oneDNN's, and whether passes over
    packed rows are compiled.
    """

    device: torch.device
    dtype: torch.dtype
    onednn: bool = False
    compile: bool = False


def described(runtime: Runtime) -> dict[str, str | int | bool | None]:
    """What a process computes on, for its record; `gpu` is null on a CPU."""
    on_gpu = runtime.device.type == "cuda"
    return {
        "device": str(runtime.device),
        "dtype": str(runtime.dtype).removeprefix("torch."),
        "linear": "onednn" if runtime.onednn else "torch",
        "compiled": runtime.compile,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(runtime.device) if on_gpu else None,
        "cuda": torch.version.cuda,
    }


def set_up(compute: Compute) -> Runtime:
    """Resolve `auto`, fix the number of threads and ask torch for deterministic kernels."""
    name = compute.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ParamsError(f"params.yaml: compute.device = {name!r}: {error}") from None
    if device.type not in ("cpu", "cuda"):
        raise ParamsError(f"params.yaml: compute.device = {name!r}: use `auto`, `cpu`, `cuda` or `cuda:N`")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ParamsError(
            f"params.yaml: compute.device = {name!r}: this torch finds {torch.cuda.device_count()} CUDA devices; "
            "use `auto` or `cpu`"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    use_deterministic_kernels()
    torch.set_num_threads(available_cores() if compute.threads == "auto" else compute.threads)
    dtype = compute.dtype
    if dtype == "auto":
        dtype = "bfloat16" if device.type == "cuda" else "float32"
    if compute.compile:
        check_compiler(device)
    if device.type == "cpu":
        keep_freed()
    return Runtime(device, getattr(torch, dtype), takes_onednn(compute, device, dtype), compute.compile)


def use_deterministic_kernels() -> None:
    """Without filling each new tensor with NaN, which torch does besides, and which takes a twentieth of a pass."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def takes_onednn(compute: Compute, device: torch.device, dtype: str) -> bool:
    """Whether linear layers are oneDNN's. On a GPU, and in bfloat16, torch itself takes what there is no better for."""
    if compute.linear == "onednn":
        if device.type != "cpu" or dtype != "float32":
            raise ParamsError(
                f"params.yaml: compute.linear: onednn is for float32 on a CPU, not for {dtype} on {device}; "
                "set it to auto"
            )
        if not linear.is_available():
            raise ParamsError("params.yaml: compute.linear: this torch has no oneDNN for x86; set it to auto")
    return compute.linear != "torch" and device.type == "cpu" and dtype == "float32" and linear.is_available()


def check_compiler(device: torch.device) -> None:
    """Compile something small, so that what is missing shows before anything expensive begins."""
    try:
        torch.compile(torch.sin, dynamic=True)(torch.ones(8, device=device))
    except Exception as error:  # of dynamo, of inductor, or of the compiler that it starts
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ParamsError(
            f"params.yaml: compute.compile: torch.compile does not work here: {reason}; install a C++ compiler (g++; "
            "on a GPU triton, too), or set it to false"
        ) from None
