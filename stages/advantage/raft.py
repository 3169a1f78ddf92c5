"""RAFT (Dong et al. 2023, arXiv 2304.06767): rejection-sampling fine-tuning.

The best sample of a group gets the weight 1 (all of them, if several share the highest score), the others stay out of
the loss. A group in which all scores are equal teaches nothing about what is better and stays out as well.
"""

import polars as pl

from stages.advantage.centred import group_count
from stages.common.tables import GROUP


def raft(scores: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` (null: there is none) and `advantage`, 1 for the best rows of a group, null for the others."""
    high, low = pl.col("score").max().over(GROUP), pl.col("score").min().over(GROUP)
    best = (pl.col("score") == high) & (high > low) & (group_count() >= 2)
    return scores.with_columns(baseline=pl.lit(None, dtype=pl.Float64), advantage=pl.when(best).then(1.0))
