"""Which lengths move the weights: the share of the gradient's norm by quartile of completion length.

The rows in the loss are put in order of length and cut into four equal parts. The gradient of each part alone is taken
under the reductions; its share is its norm over the sum of the four norms. sequence_sum, token_mean and
constant_length differ by one factor for all rows, so that their shares are equal; response_mean divides each row by its
length.
"""

import polars as pl

from stages.common.tables import KEY
from stages.update.rows import StepRows

QUARTILES = 4
REDUCTIONS = ("sequence_sum", "response_mean", "token_mean")


def add_quartile(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `quartile`, 1 (the shortest) to 4; rows of one length are told apart by key."""
    ordered = rows.sort("length", *KEY)
    place = pl.int_range(pl.len(), dtype=pl.Int64)
    return ordered.with_columns(quartile=(place * QUARTILES // pl.len() + 1).cast(pl.Int32)).sort(KEY)


def quartile_weights(rows: pl.DataFrame, values: StepRows, *, by_length: bool) -> list[list[list[float]]]:
    """The token weights of four losses, one for each quartile; divided by the row's length for response_mean."""
    return [
        [
            [a / len(own) if by_length else a for a in own] if quartile == wanted else [0.0] * len(own)
            for quartile, own in zip(rows["quartile"], values.advantage, strict=True)
        ]
        for wanted in range(1, QUARTILES + 1)
    ]


def share_table(rows: pl.DataFrame, norms: dict[str, list[float]]) -> pl.DataFrame:
    """One row per reduction and quartile; shares are null if nothing has a gradient."""
    lengths = rows.group_by("quartile").agg(
        rows=pl.len(), min_length=pl.col("length").min(), max_length=pl.col("length").max()
    )
    found = pl.DataFrame(
        [
            {"reduction": reduction, "quartile": number, "gradient_norm": norm}
            for reduction in REDUCTIONS
            for number, norm in enumerate(norms[reduction], start=1)
        ]
    ).with_columns(pl.col("quartile").cast(pl.Int32))
    total = pl.col("gradient_norm").sum().over("reduction")
    shares = found.with_columns(share=pl.when(total > 0).then(pl.col("gradient_norm") / total))
    return shares.join(lengths, on="quartile", how="left", maintain_order="left")
