"""How a constraint is asked for: wording, parameters, and which constraints do not go together.

The prompts table carries a constraint as `{kind, number, text}`; `stages/score/constraints.py` checks the same kinds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from stages.common.params import ConstraintKind

KEYWORDS = [
    "always",
    "because",
    "before",
    "better",
    "clean",
    "early",
    "easy",
    "enough",
    "every",
    "first",
    "fresh",
    "gentle",
    "good",
    "helps",
    "keep",
    "little",
    "morning",
    "never",
    "often",
    "place",
    "quick",
    "ready",
    "safe",
    "simple",
    "slowly",
    "small",
    "soft",
    "start",
    "steady",
    "strong",
    "take",
    "together",
    "warm",
]
OPENINGS = ("In short", "Good question", "First of all", "To begin", "Here is my answer", "As a rule", "Most people")
ENDINGS = (
    "Hope this helps.",
    "Good luck with it.",
    "That is all.",
    "Enjoy your day.",
    "Try it today.",
    "It is worth it.",
)
AVOIDED = ("the", "and", "you", "it", "can", "is")


@dataclass(frozen=True)
class Kind:
    """A sentence with `{number}` or `{text}` in it, and how its parameter is drawn."""

    wording: str
    numbers: Sequence[int] = ()
    texts: Sequence[str] = ()
    clashes: frozenset[str] = frozenset()

    def draw(self, kind: ConstraintKind, rng: Random) -> dict[str, Any]:
        number = rng.choice(self.numbers) if self.numbers else None
        text = rng.choice(self.texts) if self.texts else None
        return {"kind": kind, "number": number, "text": text}


def _clashes(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The order is part of the result: constraints are drawn in it, whatever the order in params.yaml.
KINDS: dict[ConstraintKind, Kind] = {
    "title": Kind(
        "Start with a title in double angle brackets, such as <<My title>>.", clashes=_clashes("json bullets")
    ),
    "max_words": Kind("Use at most {number} words.", numbers=range(15, 31)),
    "no_commas": Kind("Do not use any commas.", clashes=_clashes("json")),
    "postscript": Kind(
        "After your answer, add a postscript that starts with P.S.",
        clashes=_clashes("json quotation end_phrase ends_question"),
    ),
    "sentences": Kind(
        "Answer in exactly {number} sentence(s).",
        numbers=(1, 2),
        clashes=_clashes("bullets postscript title json end_phrase"),
    ),
    "bullets": Kind(
        "Give exactly {number} bullet points, each on its own line and starting with *.",
        numbers=(2, 3),
        clashes=_clashes("json quotation postscript end_phrase start_phrase ends_question"),
    ),
    "highlight": Kind("Highlight one word with asterisks, such as *word*.", clashes=_clashes("json")),
    "keyword": Kind('Your answer must contain the word "{text}".', texts=KEYWORDS),
    "start_phrase": Kind('Begin your answer with "{text}".', texts=OPENINGS, clashes=_clashes("title json quotation")),
    "ends_question": Kind("Ask me a question at the end.", clashes=_clashes("json quotation sentences")),
    "exclamation": Kind("Write with enthusiasm and exclamation marks!", clashes=_clashes("json")),
    "digits": Kind("Write at least one number in digits."),
    "min_words": Kind("Use at least {number} words.", numbers=range(15, 26), clashes=_clashes("max_words sentences")),
    "lowercase": Kind(
        "Use only lowercase letters.", clashes=_clashes("uppercase start_phrase end_phrase postscript title")
    ),
    "uppercase": Kind("Use only capital letters.", clashes=_clashes("keyword start_phrase end_phrase json")),
    "avoid_word": Kind('Do not use the word "{text}".', texts=AVOIDED, clashes=_clashes("start_phrase end_phrase")),
    "end_phrase": Kind(
        'Your last words must be "{text}"', texts=ENDINGS, clashes=_clashes("json quotation ends_question max_words")
    ),
    "quotation": Kind("Put the whole answer in double quotation marks.", clashes=_clashes("json title")),
    "parentheses": Kind("Put one remark in parentheses."),
    "json": Kind('Answer as a JSON object with one key "answer".'),
}


def phrase(constraint: dict[str, Any]) -> str:
    """The sentence that asks for a constraint."""
    wording = KINDS[constraint["kind"]].wording.format(number=constraint["number"], text=constraint["text"])
    return wording.replace("1 sentence(s)", "one sentence").replace("2 sentence(s)", "two sentences")


def draw_constraints(
    weights: Mapping[ConstraintKind, float], count: int, rng: Random, forbidden_text: str
) -> list[dict[str, Any]]:
    """Draw up to `count` constraints of different kinds, by weight, that can all be met in one answer.

    `forbidden_text` is the question's subject: a keyword that is the subject would be no constraint, and a subject
    that is to be avoided could not be mentioned.
    """
    drawn: list[dict[str, Any]] = []
    left = {kind: weights[kind] for kind in KINDS if kind in weights}
    while left and len(drawn) < count:
        (kind,) = rng.choices(list(left), list(left.values()))
        del left[kind]
        constraint = KINDS[kind].draw(kind, rng)
        if constraint["text"] != forbidden_text and all(_together(kind, other["kind"]) for other in drawn):
            drawn.append(constraint)
    return drawn


def _together(one: ConstraintKind, other: ConstraintKind) -> bool:
    return other not in KINDS[one].clashes and one not in KINDS[other].clashes
