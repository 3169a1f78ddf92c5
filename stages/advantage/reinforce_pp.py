"""REINFORCE++ (Hu 2025, arXiv 2501.03262): advantages normalised over the whole batch.

    batch:  A_i = (R_i - mean of the batch) / std of the batch
    group:  a_i = R_i - mean of the group;  A_i = (a_i - mean of the batch's a) / std of the batch's a

The standard deviation is that of the population. A batch of equal task rewards gives exactly 0, and so
does, in the form `group`, a constant group.
"""

from typing import Literal

import polars as pl

from stages.advantage.centred import above_low, group_mean, same_task_reward, settled
from stages.common.tables import BATCH, EQUAL


def reinforce_pp(scores: pl.DataFrame, *, baseline: Literal["batch", "group"]) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score (for `group`: or no sibling that has one)."""
    if baseline == "group":
        above, low = above_low()
        mean = group_mean(above)
        raw, base = settled(above - mean), low + mean
    else:
        raw, base = above_low(BATCH)
    framed = scores.with_columns(_raw=raw, _base=base)
    centre = _centre(pl.col("_raw"))
    centred = pl.col("_raw") - centre
    variance = centred.pow(2).sum().over(BATCH) / pl.col("_raw").count().over(BATCH)
    has_signal = (variance > 0) & ~same_task_reward(BATCH)
    return framed.with_columns(
        baseline=pl.when(pl.col("_raw").is_not_null()).then(pl.col("_base") + centre),
        advantage=pl.when(has_signal).then(centred / variance.sqrt()).otherwise(centred * 0.0),
    ).drop("_raw", "_base")


def _centre(raw: pl.Expr) -> pl.Expr:
    """The batch's mean; exactly 0 where it is that but for rounding, so that a constant group stays at 0."""
    mean = raw.sum().over(BATCH) / raw.count().over(BATCH)
    return pl.when(mean.abs() <= EQUAL * raw.abs().max().over(BATCH)).then(0.0).otherwise(mean)
