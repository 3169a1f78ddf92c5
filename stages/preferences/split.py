"""Train and held out, by prompt: two pairs of one prompt are never on two sides."""

import polars as pl

from stages.common.errors import StageError
from stages.common.seeds import seed_of


def heldout_prompts(prompts: list[tuple[int, ...]], share: float, seed: int) -> set[tuple[int, ...]]:
    """The first of the prompts by a hash of seed and prompt: `share` of them, at least one, and one less than all."""
    count = min(max(1, round(share * len(prompts))), len(prompts) - 1)
    return set(sorted(prompts, key=lambda ids: (seed_of(seed, "preferences", "split", *ids), ids))[:count])


def add_split(pairs: pl.DataFrame, share: float, seed: int, option: str) -> pl.DataFrame:
    """Fill the column `split`. The order of the pairs does not matter."""
    of_pairs = [tuple(ids) for ids in pairs["prompt_ids"].to_list()]
    prompts = list(set(of_pairs))
    if len(prompts) < 2:
        raise StageError(
            f"{option}: there are {len(of_pairs)} pairs of {len(prompts)} prompts; to train on some and to hold out "
            "others takes two prompts at least: give more"
        )
    heldout = heldout_prompts(prompts, share, seed)
    sides = ["heldout" if ids in heldout else "train" for ids in of_pairs]
    return pairs.with_columns(split=pl.Series(sides, dtype=pl.String))
