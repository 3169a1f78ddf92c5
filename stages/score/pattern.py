r"""Format reward: does the completion look as it should, by regular expressions.

    format:
      function: stages.score.pattern:matches
      arguments: {patterns: '<think>.*</think>\s*<answer>.*</answer>', match: full, flags: [dotall]}

    # several, each with what it is worth; a negative weight is a penalty
    format:
      function: stages.score.pattern:matches
      arguments:
        match: search
        patterns:
          - {pattern: '^#### -?\d+$', weight: 0.8}
          - {pattern: '(?i)as an ai', weight: -0.2}
        flags: [multiline]

The reward is the sum of the weights of those that match (a single pattern weighs 1). `match` is `full` or `search`,
`flags` are ignore_case, multiline and dotall, of Python's `re`. `with_prompt_tail` puts the end of the prompt that the
completion goes on from, such as an opened <think>, before it. Every text can be judged: no row is unscorable. A pattern
that backtracks without end costs its row's time limit.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from stages.score.columns import Scored, tails_of
from stages.score.texts import text_of

FLAGS = {"ignore_case": re.IGNORECASE, "multiline": re.MULTILINE, "dotall": re.DOTALL}


def check(patterns: Any, match: str = "full", flags: Any = (), with_prompt_tail: bool = False) -> None:
    """Refuse wrong arguments before anything is sampled."""
    if match not in ("full", "search"):
        raise ValueError(f"matches: match is full or search, not {match!r}")
    if not isinstance(with_prompt_tail, bool):
        raise ValueError(f"matches: with_prompt_tail is true or false, not {with_prompt_tail!r}")
    compiled(patterns, flags)


def compiled(patterns: Any, flags: Any) -> list[tuple[re.Pattern[str], float]]:
    """Patterns and weights; a ValueError that names what is wrong with them."""
    if isinstance(flags, str) or any(flag not in FLAGS for flag in flags):
        raise ValueError(f"matches: flags is a list of some of {', '.join(FLAGS)}, not {flags!r}")
    listed = [{"pattern": patterns}] if isinstance(patterns, str) else patterns
    if not isinstance(listed, (list, tuple)) or not listed:
        raise ValueError(
            f"matches: patterns is a pattern, or a list of {{pattern: ..., weight: ...}}, not {patterns!r}"
        )
    value = sum(FLAGS[flag] for flag in set(flags))
    return [_one(entry, value) for entry in listed]


def _one(entry: Any, flags: int) -> tuple[re.Pattern[str], float]:
    if not isinstance(entry, dict) or not {"pattern"} <= set(entry) <= {"pattern", "weight"}:
        raise ValueError(f"matches: an entry of patterns is {{pattern: ..., weight: ...}}, not {entry!r}")
    pattern, weight = entry["pattern"], entry.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not math.isfinite(weight):
        raise ValueError(f"matches: the weight of {pattern!r} has to be a number, not {weight!r}")
    try:
        return re.compile(pattern, flags), float(weight)
    except (re.error, TypeError) as error:
        raise ValueError(f"matches: the pattern {pattern!r} does not compile: {error}") from None


def matches(
    completions: Sequence[Any],
    patterns: str | list[dict[str, Any]],
    match: str = "full",
    flags: Sequence[str] = (),
    with_prompt_tail: bool = False,
    **columns: Any,
) -> Scored:
    """The sum of the weights of the patterns that match, one per completion."""
    weighted = compiled(patterns, flags)
    tails = tails_of(columns, len(completions)) if with_prompt_tail else [""] * len(completions)
    texts = [tail + text_of(completion) for completion, tail in zip(completions, tails, strict=True)]
    method = "fullmatch" if match == "full" else "search"
    return [sum((weight for one, weight in weighted if getattr(one, method)(text)), 0.0) for text in texts]


matches.check = check  # type: ignore[attr-defined]
