"""Plain REINFORCE (Williams 1992): no baseline, A_i = R_i. Unbiased, and the most noisy of all."""

import polars as pl


def reinforce(scores: pl.DataFrame) -> pl.DataFrame:
    """Add `baseline` (0) and `advantage`, null where the row has no score."""
    return scores.with_columns(
        baseline=pl.when(pl.col("score").is_not_null()).then(0.0), advantage=pl.col("score").cast(pl.Float64)
    )
