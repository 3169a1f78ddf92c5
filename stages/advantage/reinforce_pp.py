"""REINFORCE++ (Hu 2025, arXiv 2501.03262): advantages normalised over the whole batch.

    batch:  A_i = (R_i - mean of the batch) / std of the batch
    group:  a_i = R_i - mean of the group;  A_i = (a_i - mean of the batch's a) / std of the batch's a

The standard deviation is that of the population. A constant batch gives exactly 0.
"""

from typing import Literal

import polars as pl

from stages.advantage.centred import above_group_low, group_mean

BATCH = "iteration"


def reinforce_pp(scores: pl.DataFrame, *, baseline: Literal["batch", "group"]) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score (for `group`: or no sibling that has one)."""
    if baseline == "group":
        above, low = above_group_low()
        mean = group_mean(above)
        raw, base = above - mean, low + mean
    else:
        low = pl.col("score").min().over(BATCH)
        raw, base = pl.col("score") - low, low
    framed = scores.with_columns(_raw=raw, _base=base)
    centre = pl.col("_raw").sum().over(BATCH) / pl.col("_raw").count().over(BATCH)
    centred = pl.col("_raw") - centre
    variance = centred.pow(2).sum().over(BATCH) / pl.col("_raw").count().over(BATCH)
    return framed.with_columns(
        baseline=pl.when(pl.col("_raw").is_not_null()).then(pl.col("_base") + centre),
        advantage=pl.when(variance > 0).then(centred / variance.sqrt()).otherwise(centred),
    ).drop("_raw", "_base")
