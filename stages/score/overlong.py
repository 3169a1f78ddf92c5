"""Soft overlong penalty (DAPO, Yu et al. 2025, arXiv 2503.14476): longer answers lose up to 1, before the limit.

    0                                            length <= max_length - cache
    (max_length - cache - length) / cache        up to max_length
    -1                                           beyond

Use it beside the reward of the task:

    overlong: {function: stages.score.overlong:soft_overlong, arguments: {max_length: 40, cache: 8}}
"""

from collections.abc import Sequence
from typing import Any


def check(max_length: int, cache: int) -> None:
    """Refuse arguments with which there is no penalty to speak of; called before anything is sampled."""
    if not 0 < cache <= max_length:
        raise ValueError(f"soft_overlong: cache ({cache}) has to be in 1 to max_length ({max_length})")


def soft_overlong(completion_ids: Sequence[Sequence[int]], max_length: int, cache: int, **_: Any) -> list[float]:
    """One penalty in [-1, 0] per completion; lengths in tokens, the end of sequence included."""
    return [min(0.0, max(-1.0, (max_length - cache - len(ids)) / cache)) for ids in completion_ids]


soft_overlong.check = check  # type: ignore[attr-defined]
