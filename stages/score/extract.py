r"""Which part of a text is the answer: one rule for all rewards that compare answers.

The argument `extract` of a reward (and `gold_extract` for its golden answer) is one of

    whole               the whole text
    last_line           the last line that is not blank
    last_number         the last number: sign, thousands separators, fraction, currency and percent belong to it
    boxed               what the last \boxed{...} holds; braces may nest
    {after: "####"}     what follows the last such marker, to the end of its line
    {tag: answer}       what the last complete <answer>...</answer> holds
    {pattern: REGEX}    the one group of the last match

    exact: {function: "stages.score.exact_match:exact_match", arguments: {extract: {tag: answer}}}

Blanks around what is found are taken off. A template may have opened a tag, a box or a marker at the end of the prompt
already: such a tail counts as the beginning of the completion.

A completion in which nothing is found is a wrong answer and gets `missing_reward`, 0 unless the arguments say
otherwise: giving the answer in the form that was asked for is part of the task, and a policy that could leave rows
unscored by leaving out the answer would be judged by its good ones alone. A golden answer in which nothing is found is
a fault of the data: the row cannot be scored.
"""

import re
from typing import Any

from stages.score.numerals import NUMBER
from stages.score.outcome import Unscorable

Rule = str | dict[str, str]

NAMED = ("whole", "last_line", "last_number", "boxed")
KEYED = ("after", "tag", "pattern")
BOX = re.compile(r"\\f?boxed\s*\{")


def check_rule(rule: Any, option: str) -> None:
    """Refuse what is no rule, with a ValueError; called before anything is sampled."""
    if isinstance(rule, str) and rule in NAMED:
        return
    if not isinstance(rule, dict) or len(rule) != 1 or next(iter(rule)) not in KEYED:
        raise ValueError(
            f"{option}: {rule!r} is no rule; give {', '.join(NAMED)}, or one of {{after: ...}}, ...{KEYED}"
        )
    kind, value = next(iter(rule.items()))
    if not isinstance(value, str) or not value:
        raise ValueError(f"{option}: {kind} has to be a text that is not empty, not {value!r}")
    if kind == "tag" and not re.fullmatch(r"[\w:.-]+", value):
        raise ValueError(f"{option}: tag is a name, such as answer, not {value!r}")
    if kind == "pattern":
        _check_pattern(value, option)


def _check_pattern(pattern: str, option: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{option}: the pattern {pattern!r} does not compile: {error}") from None
    if groups != 1:
        raise ValueError(f"{option}: the pattern {pattern!r} needs exactly one group, and has {groups}")


def extracted(text: str, rule: Rule, tail: str = "") -> str | None:
    """The answer in `text` after the prompt's `tail`; None if there is none. A blank answer is none."""
    if isinstance(rule, dict):
        ((kind, value),) = rule.items()
        found = _by_value(text, kind, value, tail)
    elif rule == "boxed":
        found = last_boxed(tail + text)
    elif rule == "last_number":
        numbers = [match.group() for match in NUMBER.finditer(text)]
        found = numbers[-1] if numbers else None
    else:
        lines = [line for line in text.splitlines() if line.strip()] if rule == "last_line" else [text]
        found = lines[-1] if lines else None
    return found.strip() or None if found is not None else None


def _by_value(text: str, kind: str, value: str, tail: str) -> str | None:
    if kind == "after":
        _, marker, rest = (tail + text).rpartition(value)
        return (rest.splitlines() or [""])[0] if marker else None
    if kind == "tag":
        return _last_tag(tail + text, value)
    matches = list(re.finditer(value, text))
    return matches[-1].group(1) if matches else None


def _last_tag(text: str, tag: str) -> str | None:
    """Between the last closing tag that has an opening one and the opening tag nearest before it."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    end = text.rfind(closing)
    while end >= 0:
        start = text.rfind(opening, 0, end)
        if start < 0:
            return None
        if closing not in text[start:end]:
            return text[start + len(opening) : end]
        end = text.rfind(closing, 0, end)
    return None


def last_boxed(text: str) -> str | None:
    r"""The contents of the last \boxed{...} whose braces close; escaped braces are text."""
    for match in reversed(list(BOX.finditer(text))):
        depth = 1
        for brace in re.finditer(r"\\.|[{}]", text[match.end() :], re.DOTALL):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                return text[match.end() : match.end() + brace.start()]
    return None


def gold_of(texts: list[str], rule: Rule) -> list[str] | Unscorable:
    """The golden answers of a row, each extracted; any row without one cannot be scored."""
    if not texts:
        return Unscorable("the row has no golden answer")
    found = [extracted(text, rule) for text in texts]
    if None in found:
        return Unscorable(f"nothing to extract by {rule!r} in the golden answer {texts[found.index(None)][:80]!r}")
    return [answer for answer in found if answer is not None]
