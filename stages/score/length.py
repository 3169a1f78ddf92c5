"""Length penalty: completions shorter than `low` or longer than `high` lose reward, linearly and not without bound.

    -min(maximum, (low - length) / scale)     length < low
    0                                         low <= length <= high
    -min(maximum, (length - high) / scale)    length > high

    length:
      function: stages.score.length:length_penalty
      arguments: {unit: words, low: 20, high: 60, scale: 40, maximum: 0.5}

`unit` is tokens (the end of sequence included), words (parted by blanks) or characters; `scale` is how many units
cost 1. Give `low`, `high` or both; a target length is low = high. Every completion has a length: no row is unscorable.
The penalty of DAPO for answers near the token limit is stages/score/overlong.py.
"""

import math
from collections.abc import Sequence
from typing import Any

from stages.score.columns import Scored
from stages.score.texts import text_of

UNITS = ("tokens", "words", "characters")


def check(
    scale: float, unit: str = "tokens", low: int | None = None, high: int | None = None, maximum: float = 1.0
) -> None:
    """Refuse arguments with which there is no penalty to speak of; called before anything is sampled."""
    if unit not in UNITS:
        raise ValueError(f"length_penalty: unit is one of {', '.join(UNITS)}, not {unit!r}")
    for name, value in (("scale", scale), ("maximum", maximum)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ValueError(f"length_penalty: {name} ({value!r}) has to be a number over 0")
    for name, bound in (("low", low), ("high", high)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int) or bound < 0):
            raise ValueError(f"length_penalty: {name} ({bound!r}) has to be a whole number of at least 0")
    if low is None and high is None:
        raise ValueError("length_penalty: without low and high there is no penalty; give one of them, or both")
    if low is not None and high is not None and low > high:
        raise ValueError(f"length_penalty: low ({low}) has to be at most high ({high})")


def length_penalty(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    scale: float,
    unit: str = "tokens",
    low: int | None = None,
    high: int | None = None,
    maximum: float = 1.0,
    **_: Any,
) -> Scored:
    """One penalty in [-maximum, 0] per completion."""
    return [
        -min(maximum, outside(length, low, high) / scale) + 0.0  # + 0.0: no negative zero
        for length in lengths(completions, completion_ids, unit)
    ]


def outside(length: int, low: int | None, high: int | None) -> int:
    """How far the length is from the nearest allowed one."""
    below = 0 if low is None else low - length
    above = 0 if high is None else length - high
    return max(0, below, above)


def lengths(completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], unit: str) -> list[int]:
    if unit == "tokens":
        return [len(ids) for ids in completion_ids]
    texts = [text_of(completion) for completion in completions]
    return [len(text.split()) for text in texts] if unit == "words" else [len(text) for text in texts]


length_penalty.check = check  # type: ignore[attr-defined]
