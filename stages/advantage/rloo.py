"""REINFORCE Leave-One-Out (Ahmadian et al. 2024, arXiv 2402.14740).

    b_i = (S - R_i) / (n - 1),  S the sum over the n scorable siblings        A_i = R_i - b_i

The baseline of a sample is the mean score of its siblings. It does not contain the sample itself, so it is independent
of it given the prompt, and the gradient stays unbiased. A group with fewer than two scorable rows gives no signal.
"""

import polars as pl

from stages.advantage.centred import above_low, group_count, settled
from stages.common.tables import GROUP


def rloo(scores: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` and `advantage` (null where the row has no score, or no sibling that has one).

    Expects the columns of `GROUP` and `score` (null: not scorable). Order of rows and of groups does not matter.
    """
    above, low = above_low()
    siblings = pl.when(group_count() >= 2).then((above.sum().over(GROUP) - above) / (group_count() - 1))
    return scores.with_columns(baseline=low + siblings, advantage=settled(above - siblings))
