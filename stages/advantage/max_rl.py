"""MaxRL (arXiv 2602.02710): A_i = (R_i - mean) / mean of the group, for rewards that are not negative.

With rewards of 0 and 1 it weighs a prompt by one over its success rate, so that rare successes count more: towards the
gradient of log E[r] instead of E[r]. It is divided by the mean of the task rewards: a KL penalty inside the score would
bring that near 0 by chance. A group whose mean is not above 0, or whose task rewards are all equal, gives exactly 0.
"""

import polars as pl

from stages.advantage.centred import above_low, group_mean, same_task_reward
from stages.common.tables import EQUAL


def max_rl(scores: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score, or no sibling that has one."""
    above, low = above_low()
    mean, success = group_mean(above), group_mean(pl.col("task_reward"))
    centred = above - mean
    has_signal = (success > EQUAL) & ~same_task_reward()
    advantage = pl.when(has_signal).then(centred / success).otherwise(centred * 0.0)
    return scores.with_columns(baseline=low + mean, advantage=advantage)
