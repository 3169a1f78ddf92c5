"""What a run costs: seconds of training, peak memory, and the models that it holds.

Kept in the run's working folder, so that a run that was stopped and went on has them all.
"""

import json
import resource
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.study.runs.tables import COSTS
from stages.common import paths
from stages.common.files import publish
from stages.common.params import Params

FILE = Path("costs.json")
MB = 1e6


def read() -> dict[str, float]:
    found: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def add(seconds: float) -> None:
    """Add to the seconds of training, and take note of the memory."""
    found = read()
    found["seconds"] = found.get("seconds", 0.0) + seconds
    found["peak_memory_mb"] = max(found.get("peak_memory_mb", 0.0), peak_memory_mb())
    with publish(FILE) as scratch:
        scratch.write_text(json.dumps(found), encoding="utf-8")


def peak_memory_mb() -> float:
    """Of this process, and of its GPU if it has one."""
    import torch

    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    return own + (torch.cuda.max_memory_allocated() / MB if torch.cuda.is_available() else 0.0)


def measured(columns: dict[str, Any], params: Params, offline: str | None) -> pl.DataFrame:
    """The row of the costs table."""
    folders = held_folders(params, offline)
    trained = folders[:1] + ([paths.critic(paths.INITIAL)] if params.critic else [])
    weights = sum(map(weights_mb, folders)) + 2 * sum(map(weights_mb, trained))  # AdamW's two moments
    row = columns | read() | {"models": len(folders), "weights_mb": weights}
    return pl.DataFrame([row], schema=COSTS)


def held_folders(params: Params, offline: str | None) -> list[Path]:
    """Of the models that training asks for: policy, reference, reward models, critic; the policy first."""
    folders = [paths.policy(paths.INITIAL), paths.REFERENCE]
    if offline is None:
        used = {reward.model for reward in params.score.rewards.values() if reward.model is not None}
        folders += [paths.reward_model(name) for name in sorted(used)]
        folders += [paths.critic(paths.INITIAL)] if params.critic else []
    return folders


def weights_mb(folder: Path) -> float:
    """Of the files with weights; those of optimizers have other names."""
    names = ("model*.safetensors", "adapter_model.safetensors", "head.safetensors")
    return sum(path.stat().st_size for name in names for path in folder.glob(name)) / MB
