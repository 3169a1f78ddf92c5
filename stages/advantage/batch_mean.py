"""The mean score of the whole batch as baseline, the sample itself included or left out.

    including:  A_i = R_i - mean(R)               the expected gradient shrinks to (n-1)/n of it, n rows in the batch
    left out:   A_i = R_i - (S - R_i) / (n - 1)   unbiased

One baseline for all prompts: where prompts differ in difficulty it leaves that difference in the advantage.
"""

import polars as pl


def batch_mean(scores: pl.DataFrame, *, leave_one_out: bool) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row has no score (or, left out, is the batch's only one)."""
    score = pl.col("score")
    total, count = score.sum().over("iteration"), score.count().over("iteration")
    others = pl.when(count >= 2).then((total - score) / (count - 1))
    baseline = others if leave_one_out else pl.when(score.is_not_null()).then(total / count)
    return scores.with_columns(baseline=baseline).with_columns(advantage=score - pl.col("baseline"))
