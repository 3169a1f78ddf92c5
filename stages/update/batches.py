"""Which rows make an optimizer step, and how they are packed into micro-batches."""

from collections.abc import Iterator

import polars as pl

from stages.common.packing import PackedRow, groups_of, pack
from stages.common.seeds import seed_of


def minibatches(rows: pl.DataFrame, count: int, run_seed: int, iteration: int, epoch: int) -> Iterator[pl.DataFrame]:
    """Split rows into `count` optimizer steps by whole groups, in an order drawn anew for each epoch."""
    prompts = sorted(
        rows["prompt_id"].unique().to_list(), key=lambda p: (seed_of(run_seed, iteration, "minibatch", epoch, p), p)
    )
    for number in range(count):
        mine = prompts[number * len(prompts) // count : (number + 1) * len(prompts) // count]
        yield rows.filter(pl.col("prompt_id").is_in(mine))


def micro_batches(rows: pl.DataFrame, max_tokens: int, *, one_by_one: bool) -> list[PackedRow]:
    """Rows with a gradient as packed rows, the longest first; `row_T` of each refers to the `index` column."""
    return pack(groups_of(rows), max_tokens, one_by_one=one_by_one)
