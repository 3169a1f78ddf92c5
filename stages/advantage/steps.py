"""Two optional steps after the estimator: normalising the advantages of a batch, and clipping them.

They work on what the loss will see: the advantage of each row, or, where tokens have their own, that of each token.
"""

from collections.abc import Callable

import polars as pl

from stages.common.tables import EQUAL


def normalise(table: pl.DataFrame) -> pl.DataFrame:
    """Mean 0 and (population) standard deviation 1 over the batch; equal advantages give exactly 0, and so does an
    advantage of 0 where the mean is 0 but for rounding.
    """
    values = _seen_by_loss(table).to_numpy()
    if not len(values):
        return table
    centre, largest = float(values.mean()), float(abs(values).max())
    if abs(centre) <= EQUAL * largest:
        centre = 0.0
    differ = float(values.max() - values.min()) > EQUAL * largest
    scale = float(((values - centre) ** 2).mean() ** -0.5) if differ else 0.0
    return _change(table, lambda value: (value - centre) * scale)


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
