"""Pairs of the preferences table as token sequences; which make an optimizer step, and which a micro-batch.

The loss of a pair couples its two answers, so a micro-batch has whole pairs. It may take several forward passes, whose
graphs live until its one backward pass: where the model takes no block mask, or where a pair exceeds the budget.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from stages.common.packing import Group, PackedRow, pack
from stages.common.seeds import seed_of


@dataclass(frozen=True)
class Pair:
    """A prompt and two answers to it; `reference` are the log-probs of chosen and rejected under the reference."""

    pair_id: str
    prompt_ids: Sequence[int]
    chosen_ids: Sequence[int]
    rejected_ids: Sequence[int]
    reference: tuple[float, float] | None = None

    @property
    def lengths(self) -> tuple[int, int]:
        return len(self.chosen_ids), len(self.rejected_ids)

    def tokens(self, *, one_by_one: bool) -> int:
        """Tokens of its forward passes: the prompt is read once if both answers go together."""
        return (2 if one_by_one else 1) * len(self.prompt_ids) + sum(self.lengths)


@dataclass(frozen=True)
class Splits:
    """Pairs to train on, and those that are held out; there may be none of the latter."""

    training: list[Pair]
    heldout: list[Pair]


def pairs_of(table: pl.DataFrame) -> list[Pair]:
    """One pair per row, in order."""
    return [Pair(*row) for row in table.select("pair_id", "prompt_ids", "chosen_ids", "rejected_ids").iter_rows()]


def packed_rows(pairs: Sequence[Pair], max_tokens: int, *, one_by_one: bool) -> list[PackedRow]:
    """Forward passes over both answers of all pairs; rows 2i and 2i + 1 are chosen and rejected of pair i."""
    groups = [
        Group(pair.prompt_ids, [pair.chosen_ids, pair.rejected_ids], [2 * place, 2 * place + 1])
        for place, pair in enumerate(pairs)
    ]
    return pack(groups, max_tokens, one_by_one=one_by_one)


def epoch_batches(pairs: Sequence[Pair], count: int, run_seed: int, epoch: int) -> Iterator[list[Pair]]:
    """The pairs of each optimizer step, `count` at a time; the last step of an epoch takes what is left.

    The order is drawn anew for each epoch, and is the same for all objectives: what differs between them is no chance.
    """
    order = sorted(pairs, key=lambda pair: (seed_of(run_seed, "offline", epoch, pair.pair_id), pair.pair_id))
    for first in range(0, len(order), count):
        yield order[first : first + count]


def micro_batches(pairs: Sequence[Pair], max_tokens: int, *, one_by_one: bool) -> Iterator[list[Pair]]:
    """A step's pairs by at most `max_tokens` tokens, one pair at least; longest first, so that a lack of memory shows
    at once.
    """
    batch: list[Pair] = []
    tokens = 0
    for pair in sorted(pairs, key=lambda pair: (-pair.tokens(one_by_one=one_by_one), pair.pair_id)):
        if batch and tokens + pair.tokens(one_by_one=one_by_one) > max_tokens:
            yield batch
            batch, tokens = [], 0
        batch.append(pair)
        tokens += pair.tokens(one_by_one=one_by_one)
    if batch:
        yield batch
