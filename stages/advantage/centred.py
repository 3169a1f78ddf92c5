"""What the group-relative estimators share: scores measured from the group's lowest, and their mean.

Measured so, equal scores give exactly 0, whatever their binary fractions.
"""

import polars as pl

from stages.common.tables import GROUP


def above_group_low() -> tuple[pl.Expr, pl.Expr]:
    """Each score above the lowest of its group, and that lowest."""
    low = pl.col("score").min().over(GROUP)
    return pl.col("score") - low, low


def group_count() -> pl.Expr:
    """Scorable rows of the group."""
    return pl.col("score").count().over(GROUP)


def group_mean(values: pl.Expr) -> pl.Expr:
    """Mean over the group's scorable rows, on scorable rows only; null in groups of fewer than two of them."""
    counts = (group_count() >= 2) & pl.col("score").is_not_null()
    return pl.when(counts).then(values.sum().over(GROUP) / group_count())
