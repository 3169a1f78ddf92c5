"""ReMax (Li et al. 2023, arXiv 2310.10505): A_i = R_i - R of the prompt's greedy completion.

The greedy completion depends on the prompt and the policy, not on the samples, so that the gradient stays unbiased. It
costs one more completion per prompt, which is never trained on.
"""

import polars as pl

from stages.common.tables import GROUP


def remax(scores: pl.DataFrame, greedy: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` and `advantage`, null where the row, or its prompt's greedy completion, has no score.

    `greedy` has the columns of `GROUP` and `score`, one row per group.
    """
    baselines = greedy.select(*GROUP, pl.col("score").alias("baseline"))
    joined = scores.join(baselines, on=GROUP, how="left", validate="m:1", maintain_order="left")
    baseline = pl.when(pl.col("score").is_not_null()).then(pl.col("baseline"))
    return joined.with_columns(baseline=baseline, advantage=pl.col("score") - pl.col("baseline"))
