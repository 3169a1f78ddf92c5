"""Numeric match: 1 if the answer is the golden number, however either is written, else 0.

    # GSM8K: the golden answer ends in `#### 1,234`
    numeric:
      function: stages.score.numeric_match:numeric_match
      arguments: {gold_extract: {after: "####"}}

Numbers are read as stages/score/numerals.py says and compared as exact fractions: 0.3 is 3/10 without a rounding error,
and 1/3 is not 0.333. `absolute` and `relative` allow a difference of absolute, or of relative times the golden number,
whichever is larger. `12.5%` may be 12.5 or 0.125, whichever the other side writes; with a percent sign on both sides
the numbers before it are compared.

A golden answer that is no number makes its row unscorable, not every answer wrong; an answer that is no number is
wrong. A completion in which `extract` finds nothing gets `missing_reward`.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from stages.score.columns import Scored, check_missing_reward, column_of, golds_of, tails_of
from stages.score.extract import Rule, check_rule, extracted, gold_of
from stages.score.numerals import Numeral, numeral
from stages.score.outcome import Unscorable
from stages.score.texts import text_of


def check(
    column: str = "answer",
    extract: Any = "last_number",
    gold_extract: Any = "whole",
    missing_reward: float = 0.0,
    absolute: float = 0.0,
    relative: float = 0.0,
) -> None:
    """Refuse wrong arguments before anything is sampled."""
    check_rule(extract, "numeric_match: extract")
    check_rule(gold_extract, "numeric_match: gold_extract")
    check_missing_reward(missing_reward, "numeric_match")
    for name, value in (("absolute", absolute), ("relative", relative)):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise ValueError(f"numeric_match: {name} ({value!r}) has to be a number of at least 0")
    if not isinstance(column, str):
        raise ValueError(f"numeric_match: column is the name of one column, not {column!r}")


def numeric_match(
    completions: Sequence[Any],
    column: str = "answer",
    extract: Rule = "last_number",
    gold_extract: Rule = "whole",
    missing_reward: float = 0.0,
    absolute: float = 0.0,
    relative: float = 0.0,
    **columns: Any,
) -> Scored:
    """One reward of 0 or 1 per completion."""
    tolerance = Fraction(str(absolute)), Fraction(str(relative))
    golds = column_of(columns, column, "numeric_match")
    tails = tails_of(columns, len(completions))
    rewards: Scored = []
    for completion, value, tail in zip(completions, golds, tails, strict=True):
        gold = gold_numbers(golds_of(value), gold_extract)
        answer = extracted(text_of(completion), extract, tail)
        if isinstance(gold, Unscorable):
            rewards.append(gold)
        elif answer is None:
            rewards.append(missing_reward)
        else:
            number = numeral(answer)
            rewards.append(float(number is not None and any(equal(number, one, *tolerance) for one in gold)))
    return rewards


def gold_numbers(texts: list[str], rule: Rule) -> list[Numeral] | Unscorable:
    found = gold_of(texts, rule)
    if isinstance(found, Unscorable):
        return found
    numbers = [numeral(text) for text in found]
    if None in numbers:
        return Unscorable(f"the golden answer {found[numbers.index(None)][:80]!r} is not a number")
    return [number for number in numbers if number is not None]


def equal(answer: Numeral, gold: Numeral, absolute: Fraction, relative: Fraction) -> bool:
    """Whether some reading of the percent sign makes the two equal, within the larger of the two tolerances."""
    return any(abs(a - g) <= max(absolute, relative * abs(g)) for a, g in readings(answer, gold))


def readings(answer: Numeral, gold: Numeral) -> list[tuple[Fraction, Fraction]]:
    if answer.percent and not gold.percent:
        return [(answer.value, gold.value), (answer.value / 100, gold.value)]
    if gold.percent and not answer.percent:
        return [(answer.value, gold.value), (answer.value, gold.value / 100)]
    return [(answer.value, gold.value)]


def needs(column: str = "answer", **others: Any) -> set[str]:
    """The column with the golden answer."""
    return {column}


numeric_match.needs = needs  # type: ignore[attr-defined]
numeric_match.check = check  # type: ignore[attr-defined]
