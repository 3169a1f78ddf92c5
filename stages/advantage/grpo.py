"""GRPO (DeepSeekMath, Shao et al. 2024, arXiv 2402.03300): A_i = (R_i - mean) / std of the group.

Dividing by the standard deviation gives every mixed group the same weight: the expected gradient is a reweighted one,
not that of the expected reward. A constant group gives exactly 0; nothing is divided by an epsilon.
"""

from typing import Literal

import polars as pl

from stages.advantage.centred import above_group_low, group_count, group_mean
from stages.common.tables import GROUP


def grpo(scores: pl.DataFrame, *, std: Literal["population", "sample"]) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score, or no sibling that has one.

    `std` divides by n (population) or by n - 1 (sample).
    """
    above, low = above_group_low()
    mean = group_mean(above)
    squares = (above - mean).pow(2).sum().over(GROUP)
    deviation = (squares / (group_count() - (0 if std == "population" else 1))).sqrt()
    advantage = pl.when(squares > 0).then((above - mean) / deviation).otherwise(above - mean)
    return scores.with_columns(baseline=low + mean, advantage=advantage)
