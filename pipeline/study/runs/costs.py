"""What a run costs: seconds of training, peak memory, and the models that it holds.

Seconds are kept by part of the run in its working folder, so that a run that went on has them all, once.
"""

import json
import math
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
from safetensors import safe_open

from pipeline.study.runs.tables import COSTS
from stages.common import paths
from stages.common.files import publish
from stages.common.params import Params
from stages.entry import models_of

FILE = Path("costs.json")
MB = 1e6
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MOMENTS = 2 * 4  # bytes of AdamW's state for each weight
MASTER = 4  # and of its copy of a weight that is not float32


def forget_peak() -> None:
    """Let the peak be that of what comes now; where the system cannot, it stays that of the whole process."""
    import torch

    with suppress(OSError):
        CLEAR.write_text("5", encoding="ascii")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_memory_mb() -> float:
    """Of this process since `forget_peak`, and of its GPU if it has one."""
    import torch

    gpu = torch.cuda.max_memory_allocated() / MB if torch.cuda.is_available() else 0.0
    lines = STATUS.read_text(encoding="ascii").splitlines() if STATUS.exists() else []
    found = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    kilobytes = found[0] if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes * 1024 / MB + gpu


def note(part: str, seconds: float) -> None:
    """The seconds of a part of training that is done, and the memory it took."""
    found = _read()
    found[part] = {"seconds": seconds, "peak_memory_mb": peak_memory_mb()}
    with publish(FILE) as scratch:
        scratch.write_text(json.dumps(found), encoding="utf-8")


def _read() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def measured(columns: dict[str, Any], params: Params, offline: str | None) -> pl.DataFrame:
    """The row of the costs table."""
    parts, held = _read().values(), held_folders(params, offline)
    row = columns | {
        "seconds": sum(part["seconds"] for part in parts),
        "peak_memory_mb": max(part["peak_memory_mb"] for part in parts),
        "models": len(held),
        "state_mb": state_mb(held, params),
    }
    return pl.DataFrame([row], schema=COSTS)


def held_folders(params: Params, offline: str | None) -> list[Path]:
    """Of the models that training asks for: policy, reference, reward models, critic."""
    folders = [paths.policy(paths.INITIAL), paths.REFERENCE]
    if offline is None:
        used = {reward.model for reward in params.score.rewards.values() if reward.model is not None}
        folders += [paths.reward_model(name) for name in sorted(used)]
        folders += [paths.critic(paths.INITIAL)] if params.critic else []
    return folders


def state_mb(held: list[Path], params: Params) -> float:
    """Weights in the precision they are held in; of those that are trained AdamW's state as well."""
    size = models_of(params.compute).runtime.dtype.itemsize
    trained = {paths.policy(paths.INITIAL), paths.critic(paths.INITIAL)}
    of_optimizer = MOMENTS + (MASTER if size < MASTER else 0)
    return sum(weights(folder) * (size + (of_optimizer if folder in trained else 0)) for folder in held) / MB


def weights(folder: Path) -> int:
    """How many numbers there are in the folder's files of weights; those of optimizers have other names."""
    names = ("model*.safetensors", "adapter_model.safetensors", "head.safetensors")
    return sum(_numbers(path) for name in names for path in folder.glob(name))


def _numbers(path: Path) -> int:
    with safe_open(path, framework="numpy") as file:
        return sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
