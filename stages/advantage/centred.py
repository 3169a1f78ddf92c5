"""What the group-relative estimators share: scores measured from the group's lowest, and their mean.

Measured so, equal scores give exactly 0, whatever their binary fractions. Where the task rewards are equal and the
penalty inside the scores differs by no more than what float32 log-probs differ by from one kernel to another, scores
count as equal too: rounding is no signal, but an optimizer that normalises its steps would make a full step of it.
"""

from collections.abc import Sequence

import polars as pl

from stages.common.tables import EQUAL, GROUP

NOISE = 1e-5


def same_task_reward(over: Sequence[str] = GROUP) -> pl.Expr:
    """Whether all scorable rows of the group (or of another key) have one task reward."""
    reward = pl.when(pl.col("score").is_not_null()).then(pl.col("task_reward"))
    low, high = reward.min().over(over), reward.max().over(over)
    return high - low <= EQUAL * pl.max_horizontal(high.abs(), pl.lit(1.0))


def above_low(over: Sequence[str] = GROUP) -> tuple[pl.Expr, pl.Expr]:
    """Each score above the lowest of its group (or of another key), and that lowest."""
    low = pl.col("score").min().over(over)
    return pl.col("score") - low, low


def settled(advantage: pl.Expr, over: Sequence[str] = GROUP) -> pl.Expr:
    """The advantage, or exactly 0 where the scores are equal but for rounding."""
    spread = (pl.col("score").max() - pl.col("score").min()).over(over)
    return pl.when(same_task_reward(over) & (spread <= NOISE)).then(advantage * 0.0).otherwise(advantage)


def group_count() -> pl.Expr:
    """Scorable rows of the group."""
    return pl.col("score").count().over(GROUP)


def group_mean(values: pl.Expr) -> pl.Expr:
    """Mean over the group's scorable rows, on scorable rows only; null in groups of fewer than two of them."""
    counts = (group_count() >= 2) & pl.col("score").is_not_null()
    return pl.when(counts).then(values.sum().over(GROUP) / group_count())
