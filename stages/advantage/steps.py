"""Two optional steps after the estimator: normalising the advantages of a batch, and clipping them.

They work on what the loss will see: the advantage of each row, or, where tokens have their own, that of each token.
"""

from collections.abc import Callable

import polars as pl


def normalise(table: pl.DataFrame) -> pl.DataFrame:
    """Mean 0 and (population) standard deviation 1 over the batch; equal advantages give exactly 0."""
    values = _seen_by_loss(table)
    if values.is_empty():
        return table
    low = values.min()
    centre = (values - low).mean()
    above: pl.Series = values - low - centre
    deviation = float((above * above).mean() ** 0.5)  # type: ignore[operator]
    scale = 1.0 / deviation if deviation > 0 else 0.0
    return _change(table, lambda value: (value - low - centre) * scale)


def clip(table: pl.DataFrame, limit: float) -> pl.DataFrame:
    """Hold advantages in [-limit, limit]."""
    return _change(table, lambda value: value.clip(-limit, limit))


def _by_token(table: pl.DataFrame) -> bool:
    return table["token_advantages"].null_count() < table.height


def _seen_by_loss(table: pl.DataFrame) -> pl.Series:
    """Every advantage that enters the loss, as one series."""
    column = table["token_advantages"].explode() if _by_token(table) else table["advantage"]
    return column.drop_nulls()


def _change(table: pl.DataFrame, change: Callable[[pl.Expr], pl.Expr]) -> pl.DataFrame:
    if _by_token(table):
        return table.with_columns(token_advantages=pl.col("token_advantages").list.eval(change(pl.element())))
    return table.with_columns(advantage=change(pl.col("advantage")))
