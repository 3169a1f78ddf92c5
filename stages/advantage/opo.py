"""OPO, on-policy with the optimal baseline (Hao et al. 2025, arXiv 2505.23585), in its length-weighted form.

    b = sum_j l_j R_j / sum_j l_j over the group,  l_j the length of completion j        A_i = R_i - b

The variance-optimal baseline weighs scores by squared gradient norms; where those grow with length, by lengths. It
includes the sample itself, so that the gradient is not exactly unbiased.
"""

import polars as pl

from stages.advantage.centred import above_low, group_count, settled
from stages.common.tables import GROUP


def opo(scores: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` and `advantage`; expects the column `length`. Null as for the other group baselines."""
    above, low = above_low()
    length = pl.when(pl.col("score").is_not_null()).then(pl.col("length"))
    weighted = (above * length).sum().over(GROUP) / length.sum().over(GROUP)
    counts = (group_count() >= 2) & pl.col("score").is_not_null()
    mean = pl.when(counts).then(weighted)
    return scores.with_columns(baseline=low + mean, advantage=settled(above - mean))
