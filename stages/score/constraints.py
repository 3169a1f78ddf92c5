"""The embedded task's reward: the fraction of a prompt's constraints that its answer meets.

Each prompt has one more constraint than it spells out: the answer must have substance, that is at least `MIN_WORDS`
different words, and it must name the question's subject. Without it a degenerate answer of a few tokens would meet many
of the others. A constraint that can only be judged at the end of an answer is not met by one that was cut off.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from stages.score.texts import text_of

MIN_WORDS = 6

Check = Callable[[str, int | None, str | None], bool]


def words(text: str) -> list[str]:
    """Lowercased words: runs of letters, digits and inner apostrophes."""
    return re.findall(r"[a-z0-9]+(?:'[a-z]+)?", text.lower())


def count_sentences(text: str) -> int:
    """Stretches of text that hold a letter and end in `.`, `!` or `?` or at the end of the text."""
    pieces = re.split(r"(?<=[.!?])[\"')\]]*\s+", text.strip())
    return sum(1 for piece in pieces if re.search(r"[A-Za-z]", piece))


def bullet_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"\s*[*•-]\s+\S", line)]


def has_word(text: str, word: str) -> bool:
    return word.lower() in words(text)


def is_lowercase(text: str) -> bool:
    return text == text.lower() and any(c.isalpha() for c in text)


def is_uppercase(text: str) -> bool:
    return text == text.upper() and any(c.isalpha() for c in text)


def ends_sentence(text: str) -> bool:
    return bool(re.search(r"[.!?][\"')\]]*$", text.strip()))


def is_answer_object(text: str) -> bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and list(value) == ["answer"]


def starts_with(text: str, phrase: str) -> bool:
    return bool(re.match(rf"{re.escape(phrase)}\b", text.strip(), re.IGNORECASE))


def ends_with(text: str, phrase: str) -> bool:
    return text.strip().rstrip(".").lower().endswith(phrase.rstrip(".").lower())


CHECKS: dict[str, Check] = {
    "lowercase": lambda text, number, word: is_lowercase(text),
    "uppercase": lambda text, number, word: is_uppercase(text),
    "no_commas": lambda text, number, word: "," not in text,
    "max_words": lambda text, number, word: len(words(text)) <= (number or 0),
    "min_words": lambda text, number, word: len(words(text)) >= (number or 0),
    "sentences": lambda text, number, word: count_sentences(text) == number and ends_sentence(text),
    "keyword": lambda text, number, word: has_word(text, word or ""),
    "avoid_word": lambda text, number, word: not has_word(text, word or ""),
    "title": lambda text, number, word: bool(re.match(r"\s*<<[^<>\n]*[A-Za-z][^<>\n]*>>\s*\S", text)),
    "bullets": lambda text, number, word: len(bullet_lines(text)) == number,
    "postscript": lambda text, number, word: bool(re.search(r"\S\s+P\.\s?S\.:?\s*\w[^\n]*\s*$", text)),
    "start_phrase": lambda text, number, word: starts_with(text, word or ""),
    "end_phrase": lambda text, number, word: ends_with(text, word or ""),
    "ends_question": lambda text, number, word: text.strip().endswith("?"),
    "quotation": lambda text, number, word: bool(re.fullmatch(r'\s*"[^"]+"\s*', text)),
    "exclamation": lambda text, number, word: "!" in text,
    "highlight": lambda text, number, word: bool(re.search(r"\*[A-Za-z][^*\n]*\*", text)),
    "parentheses": lambda text, number, word: bool(re.search(r"\([^()]*[A-Za-z][^()]*\)", text)),
    "digits": lambda text, number, word: bool(re.search(r"\d", text)),
    "json": lambda text, number, word: is_answer_object(text),
}

NEEDS_END = frozenset(
    {"max_words", "sentences", "bullets", "postscript", "end_phrase", "ends_question", "quotation", "json"}
)


def has_substance(text: str, subject: str) -> bool:
    """Enough different words, and one of them is the subject or begins like it (plural, past tense)."""
    stem = subject.lower()[: max(3, len(subject) - 1)]
    found = set(words(text))
    return len(found) >= MIN_WORDS and any(word.startswith(stem) for word in found)


def is_met(constraint: dict[str, Any], text: str, finish_reason: str) -> bool:
    """Whether an answer meets one constraint, substance aside."""
    if finish_reason == "length" and constraint["kind"] in NEEDS_END:
        return False
    return CHECKS[constraint["kind"]](text, constraint["number"], constraint["text"])


def outcomes(text: str, constraints: list[dict[str, Any]], subject: str, finish_reason: str) -> dict[str, bool]:
    """Each constraint of one prompt by kind, `substance` among them, and whether the answer meets it."""
    met = {c["kind"]: is_met(c, text, finish_reason) for c in constraints}
    return {"substance": has_substance(text, subject), **met}


def parts(
    completions: Sequence[Any],
    constraints: Sequence[list[dict[str, Any]]],
    subject: Sequence[str],
    finish_reason: Sequence[str],
    **columns: object,
) -> list[dict[str, float]]:
    """What each row's reward is the mean of, by name."""
    rows = zip(map(text_of, completions), constraints, subject, finish_reason, strict=True)
    return [{kind: float(met) for kind, met in outcomes(*row).items()} for row in rows]


def reward(
    completions: Sequence[Any],
    constraints: Sequence[list[dict[str, Any]]],
    subject: Sequence[str],
    finish_reason: Sequence[str],
    **columns: object,
) -> list[float]:
    """Reward function with TRL's signature: the fraction of constraints met, between 0 and 1."""
    return [sum(row.values()) / len(row) for row in parts(completions, constraints, subject, finish_reason)]
