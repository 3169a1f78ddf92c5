"""Exact match: 1 if the answer is the golden answer, text by text, else 0.

    exact:
      function: stages.score.exact_match:exact_match
      arguments: {extract: {tag: answer}, ignore_case: true}

`column` holds the golden answer, or a list of golden answers any of which will do; `extract` and `gold_extract` say
which part of the completion and of the column counts (stages/score/extract.py). Blanks at the ends are taken off and
runs of them are one blank unless `strip_spaces` is off. A row without a golden answer cannot be scored; a completion
without an answer gets `missing_reward`.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

from stages.score.columns import Scored, check_missing_reward, column_of, golds_of, tails_of
from stages.score.extract import Rule, check_rule, extracted, gold_of
from stages.score.outcome import Unscorable
from stages.score.texts import text_of


def check(
    column: str = "answer",
    extract: Any = "whole",
    gold_extract: Any = "whole",
    missing_reward: float = 0.0,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    strip_spaces: bool = True,
) -> None:
    """Refuse wrong arguments before anything is sampled."""
    check_rule(extract, "exact_match: extract")
    check_rule(gold_extract, "exact_match: gold_extract")
    check_missing_reward(missing_reward, "exact_match")
    switches = {"ignore_case": ignore_case, "ignore_punctuation": ignore_punctuation, "strip_spaces": strip_spaces}
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ValueError(f"exact_match: {name} is true or false, not {value!r}")
    if not isinstance(column, str):
        raise ValueError(f"exact_match: column is the name of one column, not {column!r}")


def exact_match(
    completions: Sequence[Any],
    column: str = "answer",
    extract: Rule = "whole",
    gold_extract: Rule = "whole",
    missing_reward: float = 0.0,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    strip_spaces: bool = True,
    **columns: Any,
) -> Scored:
    """One reward of 0 or 1 per completion."""

    def normal(text: str) -> str:
        return normalised(text, ignore_case, ignore_punctuation, strip_spaces)

    rewards: Scored = []
    golds = column_of(columns, column, "exact_match")
    for completion, value, tail in zip(completions, golds, tails_of(columns, len(completions)), strict=True):
        gold = gold_of(golds_of(value), gold_extract)
        answer = extracted(text_of(completion), extract, tail)
        if isinstance(gold, Unscorable):
            rewards.append(gold)
        elif answer is None:
            rewards.append(missing_reward)
        else:
            rewards.append(float(normal(answer) in map(normal, gold)))
    return rewards


def normalised(text: str, ignore_case: bool, ignore_punctuation: bool, strip_spaces: bool) -> str:
    """What is compared. Unicode's compatible forms are one form, as they look alike (NFKC)."""
    text = unicodedata.normalize("NFKC", text)
    if ignore_case:
        text = text.casefold()
    if ignore_punctuation:
        text = "".join(c for c in text if not unicodedata.category(c).startswith("P"))
    return " ".join(text.split()) if strip_spaces else text


def needs(column: str = "answer", **others: Any) -> set[str]:
    """The column with the golden answer."""
    return {column}


exact_match.needs = needs  # type: ignore[attr-defined]
exact_match.check = check  # type: ignore[attr-defined]
