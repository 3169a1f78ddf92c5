"""Packed rows: one forward pass reads a prompt once for all of its completions.

A packed row is `[prompt, c_1 .. c_K, prompt', c'_1 .. c'_K, ...]` with a block mask (a completion sees its own prompt
and itself, nothing else) and positions that restart after each prompt. Log-probs and gradients are those of separate
rows; the prompt is computed once instead of K times, and nothing is padded.

Dimension suffixes: L tokens of one packed row, T predicted (completion) tokens of that row.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import polars as pl


@dataclass(frozen=True)
class Group:
    """A prompt with the completions that follow it; `rows` are the caller's indices of the completions."""

    prompt_ids: Sequence[int]
    completions: Sequence[Sequence[int]]
    rows: Sequence[int]

    @property
    def tokens(self) -> int:
        return len(self.prompt_ids) + sum(len(completion) for completion in self.completions)


def groups_of(rows: pl.DataFrame) -> list[Group]:
    """Rows of one iteration (with `prompt_ids`, `completion_ids` and an `index` column), one group per prompt."""
    grouped = rows.group_by("prompt_id", maintain_order=True).agg(
        pl.col("prompt_ids").first(), "completion_ids", "index"
    )
    return [
        Group(row["prompt_ids"], row["completion_ids"], row["index"])
        for row in grouped.select("prompt_ids", "completion_ids", "index").iter_rows(named=True)
    ]


@dataclass
class PackedRow:
    """Token ids, positions and blocks of one forward pass, and where its predictions are."""

    ids_L: list[int] = field(default_factory=list)
    positions_L: list[int] = field(default_factory=list)
    group_L: list[int] = field(default_factory=list)  # which prompt a token belongs to
    branch_L: list[int] = field(default_factory=list)  # 0: the prompt itself, j: its j-th completion
    predict_T: list[int] = field(default_factory=list)  # index in L of the logits that predict target t
    target_T: list[int] = field(default_factory=list)  # the completion tokens
    row_T: list[int] = field(default_factory=list)  # the caller's row that target t belongs to

    @property
    def is_plain(self) -> bool:
        """One prompt with one completion: ordinary causal attention, no mask needed."""
        return max(self.group_L) == 0 and max(self.branch_L) <= 1

    def append(self, group: Group) -> None:
        number = self.group_L[-1] + 1 if self.group_L else 0
        last_of_prompt = len(self.ids_L) + len(group.prompt_ids) - 1
        self._extend(group.prompt_ids, 0, number, 0)
        for branch, (completion, row) in enumerate(zip(group.completions, group.rows, strict=True), start=1):
            first = len(self.ids_L)
            self._extend(completion, len(group.prompt_ids), number, branch)
            self.predict_T.extend([last_of_prompt, *range(first, first + len(completion) - 1)])
            self.target_T.extend(completion)
            self.row_T.extend([row] * len(completion))

    def _extend(self, ids: Sequence[int], position: int, group: int, branch: int) -> None:
        self.ids_L.extend(ids)
        self.positions_L.extend(range(position, position + len(ids)))
        self.group_L.extend([group] * len(ids))
        self.branch_L.extend([branch] * len(ids))


def split_groups(groups: Sequence[Group], max_tokens: int, *, one_by_one: bool = False) -> list[Group]:
    """Cut groups that exceed `max_tokens` into several that repeat the prompt; never cuts a completion."""
    pieces: list[Group] = []
    for group in groups:
        start, tokens = 0, len(group.prompt_ids)
        for end, completion in enumerate(group.completions):
            if end > start and (one_by_one or tokens + len(completion) > max_tokens):
                pieces.append(Group(group.prompt_ids, group.completions[start:end], group.rows[start:end]))
                start, tokens = end, len(group.prompt_ids)
            tokens += len(completion)
        pieces.append(Group(group.prompt_ids, group.completions[start:], group.rows[start:]))
    return pieces


def pack(groups: Sequence[Group], max_tokens: int, *, one_by_one: bool = False) -> list[PackedRow]:
    """Pack groups into few rows of at most `max_tokens` tokens, about as long as each other: the longest decides how
    much memory the passes take. It comes first: a lack of memory shows at once.

    A single prompt with one completion that is longer than the budget gets a row of its own. `one_by_one` puts one
    completion in each row: for models that cannot take a block mask. The rows depend on the groups and their order
    alone.
    """
    pieces = sorted(split_groups(groups, max_tokens, one_by_one=one_by_one), key=lambda piece: -piece.tokens)
    sizes = [piece.tokens for piece in pieces]
    numbers = list(range(len(pieces)))
    if not one_by_one:
        fitted = best_fit(sizes, max_tokens)
        numbers = min(fitted, evened(sizes, 1 + max(fitted, default=-1)), key=lambda each: longest(sizes, each))
    rows = [PackedRow() for _ in range(1 + max(numbers, default=-1))]
    for number, piece in zip(numbers, pieces, strict=True):
        rows[number].append(piece)
    return sorted(rows, key=lambda row: -len(row.ids_L))


def best_fit(sizes: Sequence[int], max_tokens: int) -> list[int]:
    """The row of each piece, longest first: the one that it fills up most, or a new one. Hardly more than it takes."""
    numbers: list[int] = []
    room: list[tuple[int, int]] = []  # tokens that are left in a row, and its number; ascending
    for size in sizes:
        place = bisect_left(room, (size, 0))
        left, number = room.pop(place) if place < len(room) else (max_tokens, len(room))
        insort(room, (left - size, number))
        numbers.append(number)
    return numbers


def evened(sizes: Sequence[int], rows: int) -> list[int]:
    """The row of each piece, longest first: of so many rows the shortest."""
    numbers: list[int] = []
    filled = [(0, number) for number in range(rows)]
    for size in sizes:
        before, number = heappop(filled)
        heappush(filled, (before + size, number))
        numbers.append(number)
    return numbers


def longest(sizes: Sequence[int], numbers: Sequence[int]) -> int:
    """Tokens of the longest row."""
    filled = Counter[int]()
    for size, number in zip(sizes, numbers, strict=True):
        filled[number] += size
    return max(filled.values(), default=0)
