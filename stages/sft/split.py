"""Which demonstrations are held out: by the hash of seed and prompt, whatever the order of the rows."""

import polars as pl

from stages.common.errors import StageError
from stages.common.seeds import seed_of


def split_rows(rows: pl.DataFrame, share: float, run_seed: int) -> pl.DataFrame:
    """The rows with `share` of the prompts held out, at least one, and at least one left to train on.

    Rows with the same prompt stay together: what is held out is never seen in training.
    """
    prompts = {tuple(ids) for ids in rows["prompt_ids"].to_list()}
    if len(prompts) < 2:
        raise StageError(
            f"demonstrations of {len(prompts)} prompt(s): one at least is trained on and another one held out; add some"
        )
    count = min(max(1, round(share * len(prompts))), len(prompts) - 1)
    heldout = set(sorted(prompts, key=lambda ids: (seed_of(run_seed, "sft heldout", *ids), ids))[:count])
    splits = ["heldout" if tuple(ids) in heldout else "train" for ids in rows["prompt_ids"].to_list()]
    return rows.with_columns(split=pl.Series(splits, dtype=pl.String))
