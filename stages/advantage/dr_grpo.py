"""Dr. GRPO (Liu et al. 2025, arXiv 2503.20783): A_i = R_i - mean of the group, the sample itself included.

Equal to (K-1)/K times the leave-one-out advantage in a group of K. Its loss divides by a constant length: the
reduction `constant_length` of the update.
"""

import polars as pl

from stages.advantage.centred import above_low, group_mean, settled


def dr_grpo(scores: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score, or no sibling that has one."""
    above, low = above_low()
    mean = group_mean(above)
    return scores.with_columns(baseline=low + mean, advantage=settled(above - mean))
