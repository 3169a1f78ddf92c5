"""Pairs of the preferences table as token sequences, and which of them make an optimizer step and its micro-batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stages.common.reward_model import RewardModelError, length_batches, unreadable
from stages.common.seeds import seed_of


@dataclass(frozen=True)
class Pair:
    """Prompt and answer, twice; `margin` is 0 where margins are off."""

    pair_id: str
    chosen_ids: Sequence[int]
    rejected_ids: Sequence[int]
    margin: float = 0.0

    @property
    def longest(self) -> int:
        return max(len(self.chosen_ids), len(self.rejected_ids))


def pairs_of(table: pl.DataFrame, *, margin: bool) -> list[Pair]:
    """One pair per row, in order. With `margin` each needs one: a missing margin is not a margin of 0."""
    if margin and table["margin"].null_count():
        pair_id = table.filter(pl.col("margin").is_null())["pair_id"][0]
        raise RewardModelError(
            f"pair {pair_id} has no margin; give it one, or set the reward model's `margin` to false"
        )
    columns = ("pair_id", "prompt_ids", "chosen_ids", "rejected_ids", "margin")
    return [
        Pair(pair_id, [*prompt, *chosen], [*prompt, *rejected], found if margin else 0.0)
        for pair_id, prompt, chosen, rejected, found in table.select(columns).iter_rows()
    ]


def check_readable(model: Any, pairs: Sequence[Pair]) -> None:
    """Refuse a pair that the model cannot read whole."""
    for pair in pairs:
        reason = unreadable(model, pair.chosen_ids) or unreadable(model, pair.rejected_ids)
        if reason is not None:
            raise RewardModelError(f"pair {pair.pair_id}: {reason}; leave it out of the preferences")


def epoch_batches(pairs: Sequence[Pair], count: int, seed: int, epoch: int) -> Iterator[list[Pair]]:
    """The pairs of each optimizer step, `count` at a time, in an order drawn anew for each epoch."""
    order = sorted(pairs, key=lambda pair: (seed_of(seed, "epoch", epoch, pair.pair_id), pair.pair_id))
    for first in range(0, len(order), count):
        yield order[first : first + count]


def micro_batches(pairs: Sequence[Pair], max_tokens: int) -> Iterator[list[Pair]]:
    """A step's pairs in forward passes of at most `max_tokens` tokens with padding, both answers counted."""
    for batch in length_batches([2 * pair.longest for pair in pairs], max_tokens):
        yield [pairs[i] for i in batch]
