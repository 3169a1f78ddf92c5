"""Whether the two sides of a joined row differ; columns are called `<name>_a` and `<name>_b`.

A null differs from a number and not from a null. Numbers differ by more than rounding: 1e-12 of the larger of both and
1, and for tokens, which are float32, 1e-6 of it.
"""

import polars as pl

from stages.common.tables import EQUAL

TOKEN = 1e-6


def sides(name: str) -> tuple[pl.Expr, pl.Expr]:
    """`score_a` and `score_b`; `reward_a/brief` and `reward_b/brief` of `reward/brief`."""
    head, slash, tail = name.partition("/")
    return pl.col(f"{head}_a{slash}{tail}"), pl.col(f"{head}_b{slash}{tail}")


def numbers_differ(name: str) -> pl.Expr:
    a, b = sides(name)
    scale = pl.max_horizontal(a.abs(), b.abs(), pl.lit(1.0))
    return ((a - b).abs() > EQUAL * scale).fill_null(value=False) | (a.is_null() != b.is_null())


def texts_differ(name: str) -> pl.Expr:
    """Of texts and of booleans."""
    a, b = sides(name)
    return a.ne_missing(b)


def tokens_differ(name: str) -> pl.Expr:
    """Whether any token's number differs; both sides have one for each token, or null."""
    a, b = sides(name)
    gap = (a - b).list.eval(pl.element().abs()).list.max()
    scale = pl.max_horizontal(*(x.list.eval(pl.element().abs()).list.max() for x in (a, b)), pl.lit(1.0))
    return (gap > TOKEN * scale).fill_null(value=False) | (a.is_null() != b.is_null())
