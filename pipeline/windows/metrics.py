"""How a window went, from its history: in DVC's cache under the hash that its lock names, or on disk if it is open."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.lock_text import Lock
from pipeline.plan import Plan
from pipeline.windows.cached import cached
from pipeline.windows.lock import outs
from stages.common import paths
from stages.common.journal import seconds_of
from stages.history.run import TIMED


@dataclass(frozen=True)
class Metrics:
    """Means over the window's iterations, and what was measured last in it; None where nothing was."""

    reward: float | None = None
    held_out: float | None = None
    kl: float | None = None
    length: float | None = None
    entropy: float | None = None
    alarms: int | None = None


def history_of(lock: Lock, cache: Path) -> pl.DataFrame | None:
    """The history up to the window's end; None if it was not made, or is gone."""
    made = outs(lock, "history").get(str(paths.HISTORY))
    if made is None or not cached(cache, made["md5"]).exists():
        return None
    try:
        return pl.read_parquet(cached(cache, made["md5"]))
    except (OSError, pl.exceptions.PolarsError):
        return None


def metrics_of(plan: Plan, history: pl.DataFrame | None) -> Metrics:
    """Of the window's iterations; `history` may be longer."""
    if history is None:
        return Metrics()
    rows = history.filter(pl.col("iteration").is_between(plan.first, plan.last_number))
    return Metrics(
        reward=_mean(rows, "reward"),
        held_out=_last(rows, "eval/reward"),
        kl=_last(rows, "kl"),
        length=_mean(rows, "completions/mean_length"),
        entropy=_last(rows, "entropy"),
        alarms=rows["alarms"].count() if "alarms" in rows.columns else None,
    )


def _mean(rows: pl.DataFrame, column: str) -> Any:
    return rows[column].mean() if column in rows.columns else None


def _last(rows: pl.DataFrame, column: str) -> Any:
    known = rows[column].drop_nulls() if column in rows.columns else pl.Series()
    return known[-1] if len(known) else None


def seconds_in(plan: Plan) -> float | None:
    """Of the window's stages, as they were computed here last; None if none was."""
    found = [seconds_of(stage, name) for name in plan.names for stage in TIMED]
    known = [seconds for seconds in found if seconds is not None]
    return sum(known) if known else None
