"""Which rows move the policy."""

import polars as pl


def has_advantage() -> pl.Expr:
    """Whether the advantage of the row, or of any of its tokens where they have their own, differs from 0."""
    by_token = pl.col("token_advantages").list.eval(pl.element() != 0.0).list.any()
    return pl.when(pl.col("token_advantages").is_null()).then(pl.col("advantage") != 0.0).otherwise(by_token)
