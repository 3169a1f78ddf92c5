"""MaxRL (arXiv 2602.02710): A_i = (R_i - mean) / mean of the group, for rewards that are not negative.

With rewards of 0 and 1 it weighs a prompt by one over its success rate, so that rare successes count more: towards the
gradient of log E[r] instead of E[r]. A group whose mean score is not above 0 has no success to weigh, and gives exactly
0 (a KL penalty inside the score can bring it there).
"""

import polars as pl

from stages.advantage.centred import above_group_low, group_mean


def max_rl(scores: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score, or no sibling that has one."""
    above, low = above_group_low()
    mean = group_mean(above)
    baseline, centred = low + mean, above - mean
    advantage = pl.when(baseline > 0).then(centred / baseline).when(centred.is_not_null()).then(0.0)
    return scores.with_columns(baseline=baseline, advantage=advantage)
