r"""Mathematical equality: 1 if the answer equals the golden answer as mathematics, else 0 (package math-verify).

    math:
      function: stages.score.math_answer:math_answer
      arguments: {extract: boxed, seconds: 2}

Install it with the extra `math`. Fractions, roots, sets, intervals, equations, matrices and units are read by
math-verify; plain numbers are read and compared exactly by this project (stages/score/numerals.py), as math-verify
takes `1 1/2` for 1, `5e3` for 5 and drops an escaped percent sign. With `extract: whole` the last \boxed{...} is the
answer where there is one, and else what math-verify finds in the text.

The comparison is not symmetric: a golden `5` accepts `3 + 2 = 5`, a golden `3 + 2 = 5` does not accept `5`, and an
interval given as a relation is accepted in one direction only. The golden answer comes first, always.

Prose under `extract: whole` is searched for mathematics, not refused: `It was 12, then 15` answers with what
math-verify prefers, mostly the last number, so that a text that names the golden number along the way may count as
right, or as wrong. Name the place (`boxed`, a tag, a marker) where the prompt asks for one.

    golden answer that cannot be read                   row unscorable
    answer that cannot be read                          wrong, 0
    nothing extracted from the completion               missing_reward
    math-verify takes longer than `seconds` for a step  row unscorable, not kept: nobody knows whether it is right
    nested too deeply for math-verify                   row unscorable
    no memory                                           the call raises

math-verify keeps its time by an alarm of the main thread, which some computations hold off for long. Rows are therefore
called one by one: what hangs costs its own row's limit and no other row.
"""

import re
import threading
from collections.abc import Sequence
from typing import Any

from stages.score.columns import Scored, check_missing_reward, column_of, golds_of, tails_of
from stages.score.extract import Rule, check_rule, extracted, gold_of, last_boxed
from stages.score.numerals import Numeral, numeral
from stages.score.numeric_match import readings
from stages.score.outcome import Unscorable
from stages.score.texts import text_of

DELIMITED = re.compile(r"\$|\\\(|\\\[|\\boxed")
MACRO = re.compile(r"\\(?:text|mathrm|mbox|operatorname|begin|end)\s*\{[^{}]*\}|\\[A-Za-z]+")
WORDS = re.compile(r"[^\W\d_]{3,}|(?<=\s)[^\W\d_]{2,}|(?<=\d)(?:st|nd|rd|th)\b")

Reading = Numeral | list[Any]  # a number, or the expressions of sympy that the text may mean


def check(
    column: str = "answer",
    extract: Any = "whole",
    gold_extract: Any = "whole",
    missing_reward: float = 0.0,
    seconds: int = 2,
) -> None:
    """Refuse wrong arguments, and a missing extra, before anything is sampled."""
    check_rule(extract, "math_answer: extract")
    check_rule(gold_extract, "math_answer: gold_extract")
    check_missing_reward(missing_reward, "math_answer")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 1:
        raise ValueError(f"math_answer: seconds ({seconds!r}) has to be a whole number of at least 1")
    if not isinstance(column, str):
        raise ValueError(f"math_answer: column is the name of one column, not {column!r}")
    _math_verify()


def _math_verify() -> Any:
    try:
        import math_verify
        import math_verify.errors
    except ImportError as error:
        raise ValueError(f"math_answer needs math-verify ({error}): pip install 'rloo-pipeline[math]'") from None
    return math_verify


def math_answer(
    completions: Sequence[Any],
    column: str = "answer",
    extract: Rule = "whole",
    gold_extract: Rule = "whole",
    missing_reward: float = 0.0,
    seconds: int = 2,
    **columns: Any,
) -> Scored:
    """One reward of 0 or 1 per completion. In the main thread of a process only: a RuntimeError elsewhere."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("math_answer: math-verify keeps its time limit in the main thread of a process only")
    golds = column_of(columns, column, "math_answer")
    rewards: Scored = []
    for completion, value, tail in zip(completions, golds, tails_of(columns, len(completions)), strict=True):
        gold = gold_of(golds_of(value), gold_extract)
        text = text_of(completion)
        answer = (last_boxed(tail + text) if extract == "whole" else None) or extracted(text, extract, tail)
        if isinstance(gold, Unscorable):
            rewards.append(gold)
        elif answer is None:
            read = _gold_readings(gold, seconds)
            rewards.append(read if isinstance(read, Unscorable) else missing_reward)
        else:
            rewards.append(_judged(gold, answer, seconds))
    return rewards


def _gold_readings(golds: list[str], seconds: int) -> list[Reading] | Unscorable:
    read: list[Reading] = []
    for gold in golds:
        if not DELIMITED.search(gold) and WORDS.search(MACRO.sub("", gold)) and numeral(gold) is None:
            return Unscorable(f"the golden answer {gold[:80]!r} is prose; name the part to compare by gold_extract")
        try:
            reading = _read(gold, seconds)
        except TimeoutError:
            return Unscorable(f"reading the golden answer {gold[:80]!r} took longer than {seconds} s", passing=True)
        except RecursionError:
            return Unscorable(f"the golden answer {gold[:80]!r} is nested too deeply for math-verify")
        if reading == []:
            return Unscorable(f"math-verify cannot read the golden answer {gold[:80]!r}")
        read.append(reading)
    return read


def _judged(golds: list[str], answer: str, seconds: int) -> float | Unscorable:
    read = _gold_readings(golds, seconds)
    if isinstance(read, Unscorable):
        return read
    try:
        reading = _read(answer, seconds)
        return float(any(_equal(gold, reading, seconds) for gold in read))
    except TimeoutError:
        return Unscorable(
            f"math-verify took longer than {seconds} s to compare {answer[:80]!r} "
            f"with the golden answer {golds[0][:80]!r}",
            passing=True,  # on a machine with less to do it may not take as long
        )
    except RecursionError:
        return Unscorable(f"{answer[:80]!r} is nested too deeply for math-verify")


def _read(text: str, seconds: int) -> Reading:
    """What the text means: a plain number, else what math-verify makes of the formula, or finds in the prose."""
    prose = bool(WORDS.search(MACRO.sub("", text)))
    number = numeral(text, units=prose)
    if number is not None:
        return number
    if DELIMITED.search(text) or prose:
        return _parse(text, seconds)
    return _parse(f"${text}$", seconds)


def _parse(text: str, seconds: int) -> list[Any]:
    """Expressions only: math-verify's fall-back to equal texts would accept what neither side could read."""
    math_verify = _math_verify()
    try:
        found = math_verify.parse(text, fallback_mode="no_fallback", parsing_timeout=seconds, raise_on_error=True)
    except math_verify.errors.TimeoutException:
        raise TimeoutError from None
    except (MemoryError, RecursionError):  # of the machine, not of the text
        raise
    except Exception:  # what its parser does not take is not mathematics; it has no error type of its own
        return []
    return [expression for expression in found if not isinstance(expression, str)]


def _equal(gold: Reading, answer: Reading, seconds: int) -> bool:
    """Golden answer first. Two plain numbers are compared exactly."""
    if isinstance(gold, Numeral) and isinstance(answer, Numeral):
        return any(g == a for a, g in readings(answer, gold))
    math_verify = _math_verify()
    for one in _expressions(gold):
        for other in _expressions(answer):
            try:
                if math_verify.verify(one, other, timeout_seconds=seconds, raise_on_error=True):
                    return True
            except math_verify.errors.TimeoutException:
                raise TimeoutError from None
            except (MemoryError, RecursionError):
                raise
            except Exception:  # expressions of kinds that sympy cannot compare are not equal
                continue
    return False


def _expressions(reading: Reading) -> list[Any]:
    if not isinstance(reading, Numeral):
        return reading
    from sympy import Rational

    values = [reading.value, reading.value / 100] if reading.percent else [reading.value]
    return [Rational(value.numerator, value.denominator) for value in values]


def needs(column: str = "answer", **others: Any) -> set[str]:
    """The column with the golden answer."""
    return {column}


def needs_seconds(seconds: int = 2, **others: Any) -> dict[str, float]:
    """What `limits` have to leave at least: for two texts that are read, one comparison, and importing math-verify."""
    return {"row": 3 * seconds + 2.0, "batch": 3 * seconds + 2.0}


math_answer.needs = needs  # type: ignore[attr-defined]
math_answer.needs_seconds = needs_seconds  # type: ignore[attr-defined]
math_answer.check = check  # type: ignore[attr-defined]
math_answer.rows_per_call = 1  # type: ignore[attr-defined]
math_answer.catches_memory_error = True  # type: ignore[attr-defined]  # math-verify does
