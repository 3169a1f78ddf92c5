"""RAFT (Dong et al. 2023, arXiv 2304.06767): rejection-sampling fine-tuning.

The best sample of a group gets the weight 1, the others stay out of the loss. Several that share the highest score all
get it: all of a group in which nothing differs, and a row without any sibling to be compared with.
"""

import polars as pl

from stages.advantage.centred import NOISE
from stages.common.tables import EQUAL, GROUP


def raft(scores: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` (null: there is none) and `advantage`, 1 for the best rows of a group, null for the others.

    Of rows with the same task reward, a difference in KL within rounding is none.
    """
    score, reward = pl.col("score"), pl.col("task_reward")
    high = score.max().over(GROUP)
    reward_of_best = pl.when(score == high).then(reward).max().over(GROUP)
    tied = ((reward - reward_of_best).abs() <= EQUAL) & (high - score <= NOISE)
    best = (score == high) | tied
    return scores.with_columns(baseline=pl.lit(None, dtype=pl.Float64), advantage=pl.when(best).then(1.0))
