"""The token weights of losses that are to be compared on the same rows."""

import polars as pl

from stages.common.params import Update
from stages.common.tables import KEY
from stages.update.rows import step_rows
from stages.update.training_rows import training_rows


def compared_rows(name: str, tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """The samples that are in the loss of any of the advantage tables, with prompt and completion ids and an index."""
    in_any = pl.concat([table.filter("in_loss").select(KEY) for table in tables.values()]).unique()
    rows = training_rows(name, needs_reference=False).select(
        *KEY, "prompt_ids", "completion_ids", "sampler_logprobs", "ref_logprobs"
    )
    return rows.join(in_any, on=KEY, how="semi", maintain_order="left").with_row_index("index")


def loss_weights(rows: pl.DataFrame, table: pl.DataFrame, options: Update) -> list[list[float]]:
    """The weight of each token of each row: its advantage, 0 outside of the loss, over the row's length for
    response_mean. What divides all rows alike is left out.
    """
    own = table.select(*KEY, pl.col("advantage").fill_null(0.0), "token_advantages")
    joined = rows.join(own, on=KEY, how="left", validate="1:1", maintain_order="left")
    weights = step_rows(joined).advantage
    if options.reduction != "response_mean":
        return weights
    return [[weight / len(row) for weight in row] for row in weights]
