"""Repetition penalty: the share of n-grams that repeat an earlier one, times -maximum.

    reward = -maximum * (1 - different n-grams / all n-grams)      in [-maximum, 0]

    repetition:
      function: stages.score.repetition:repetition_penalty
      arguments: {n: 3, of: words, maximum: 1.0}

Yeo et al. 2025 (arXiv 2502.03373) penalise each token of a repeated n-gram (n = 40 tokens, .05 per token) beside their
length reward; with one reward per sequence the share takes the place of the count, so that the bound does not depend
on the length. `of` is words (parted by blanks, case ignored) or tokens. A completion of fewer than n units repeats
nothing. Every completion can be judged: no row is unscorable.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any

from stages.score.columns import Scored
from stages.score.texts import text_of


def check(n: int, of: str = "words", maximum: float = 1.0) -> None:
    """Refuse wrong arguments before anything is sampled."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"repetition_penalty: n ({n!r}) has to be a whole number of at least 1")
    if of not in ("words", "tokens"):
        raise ValueError(f"repetition_penalty: of is words or tokens, not {of!r}")
    if isinstance(maximum, bool) or not isinstance(maximum, (int, float)) or not 0 < maximum < math.inf:
        raise ValueError(f"repetition_penalty: maximum ({maximum!r}) has to be a number over 0")


def repetition_penalty(
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]],
    n: int,
    of: str = "words",
    maximum: float = 1.0,
    **_: Any,
) -> Scored:
    """One penalty in [-maximum, 0] per completion."""
    if of == "tokens":
        return [-maximum * repeated_share(ids, n) + 0.0 for ids in completion_ids]
    return [-maximum * repeated_share(text_of(one).lower().split(), n) + 0.0 for one in completions]


def repeated_share(units: Sequence[Hashable], n: int) -> float:
    """1 - different / all n-grams; 0 where there is none."""
    grams = [tuple(units[i : i + n]) for i in range(len(units) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


repetition_penalty.check = check  # type: ignore[attr-defined]
