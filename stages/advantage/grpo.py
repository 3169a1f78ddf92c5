"""GRPO (DeepSeekMath, Shao et al. 2024, arXiv 2402.03300): A_i = (R_i - mean) / std of the group.

Dividing by the standard deviation gives every mixed group the same weight: the expected gradient is a reweighted one,
not that of the expected reward. A group whose task rewards are all equal gives exactly 0: nothing is divided by an
epsilon, and no difference in KL alone is blown up to a standard deviation of 1.
"""

from typing import Literal

import polars as pl

from stages.advantage.centred import above_low, group_count, group_mean, same_task_reward
from stages.common.tables import GROUP


def grpo(scores: pl.DataFrame, *, std: Literal["population", "sample"]) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score, or no sibling that has one.

    `std` divides by n (population) or by n - 1 (sample).
    """
    above, low = above_low()
    mean = group_mean(above)
    squares = (above - mean).pow(2).sum().over(GROUP)
    deviation = (squares / (group_count() - (0 if std == "population" else 1))).sqrt()
    has_signal = (squares > 0) & ~same_task_reward()
    advantage = pl.when(has_signal).then((above - mean) / deviation).otherwise((above - mean) * 0.0)
    return scores.with_columns(baseline=low + mean, advantage=advantage)
