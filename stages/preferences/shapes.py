"""A row of a preference file, in any shape that TRL's RewardTrainer and DPOTrainer take, as one conversation with two
last turns.

    prompt, chosen, rejected   all text, or all lists of {role, content}
    chosen, rejected           whole conversations: all but the last turn is the prompt
                               transcripts ("\\n\\nHuman: ...\\n\\nAssistant: ..."): split at the last Assistant turn
                               other text: the prompt is the longest shared beginning that ends at a white space, and
                               that white space belongs to neither side
    margin                     optional, a number

A text prompt that ends in "Assistant:" is a transcript too. What chosen and rejected share must be identical to the
letter. One answer is one assistant turn: rows that diverge before the last turn are refused, never repaired.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from stages.common.turns import Turn, plain, problem_of

SIDES = ("chosen", "rejected")
USED = frozenset({"prompt", "margin", *SIDES})
COLUMNS = "prompt (or chosen and rejected begin with it), chosen, rejected, and margin if there is one"
SPEAKER = re.compile(r"\n\n(Human|Assistant):[ ]?")
OPEN = "\n\nAssistant:"
SPEAKER_ROLE = {"Human": "user", "Assistant": "assistant"}


class ShapeError(ValueError):
    """What is wrong with a row, without its place."""


@dataclass(frozen=True)
class RawPair:
    """`turns` end with the user's; `chosen` and `rejected` answer them. `shape` says what the row looked like."""

    shape: str
    turns: list[Turn]
    chosen: str
    rejected: str
    margin: float | None


def pair_of(row: dict[str, Any]) -> RawPair:
    """The row as a conversation with two answers; a ShapeError says what is wrong with it."""
    sides = [side for side in SIDES if side not in row]
    if sides:
        raise ShapeError(f"no column {' and '.join(sides)}; it has {', '.join(row)}. Columns are {COLUMNS}")
    columns = [name for name in ("prompt", *SIDES) if name in row]
    for name in columns:
        _check(name, row[name])
    kinds = {name: "a conversation" if isinstance(row[name], list) else "text" for name in columns}
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise ShapeError(f"{told}: make all text or all conversations, or leave out a prompt that chosen holds anyway")
    values = [row[name] for name in columns]
    shape = _shape(values)
    turns, answers = _split(shape, values)
    if answers[0] == answers[1]:
        raise ShapeError("chosen and rejected are equal: such a pair says nothing; remove it")
    return RawPair(shape, turns, answers[0], answers[1], _margin(row))


def _check(name: str, value: Any) -> None:
    if value is None:
        raise ShapeError(f"{name} is null; fill it or remove the row")
    if not isinstance(value, (str, list)):
        raise ShapeError(f"{name} is {type(value).__name__}; it has to be text or a list of {{role, content}}")
    if not value or (isinstance(value, str) and not value.strip()):
        raise ShapeError(f"{name} is empty; fill it or remove the row")
    for place, turn in enumerate(value if isinstance(value, list) else [], start=1):
        _check_turn(f"{name}, turn {place}", turn, first=place == 1)


def _check_turn(where: str, turn: Any, *, first: bool) -> None:
    problem = problem_of(turn, first=first)
    if problem:
        raise ShapeError(f"{where}: {problem}")


def _margin(row: dict[str, Any]) -> float | None:
    if "margin" not in row:
        return None
    margin = row["margin"]
    if isinstance(margin, bool) or not isinstance(margin, (int, float)) or not math.isfinite(margin):
        raise ShapeError(f"margin is {margin!r}; give every row a finite number, or remove the column")
    return float(margin)


def _shape(columns: list[Any]) -> str:
    if isinstance(columns[0], list):
        return "conversations"
    if len(columns) == 2:
        return "transcripts" if any(map(is_transcript, columns)) else "texts with a shared prefix"
    opened = is_transcript(columns[0]) and columns[0].rstrip().endswith(OPEN)
    return "a transcript with answers" if opened else "a text with answers"


def _split(shape: str, columns: list[Any]) -> tuple[list[Turn], list[str]]:
    """The turns up to the answers, and the two answers. Columns are [prompt,] chosen, rejected."""
    prompt, sides = columns[:-2], columns[-2:]
    if shape == "conversations":
        opened = _plain(prompt[0]) if prompt else []
        return _last_turns([opened + _plain(side) for side in sides], len(opened))
    if shape == "transcripts":
        return _last_turns([turns_of_transcript(text) for text in sides], 0)
    if shape == "a transcript with answers":
        opened = turns_of_transcript(prompt[0].rstrip().removesuffix(OPEN))
        answers = [turns_of_transcript(f"{OPEN} {text.removeprefix(' ')}") for text in sides]
        return _last_turns([opened + answer for answer in answers], len(opened))
    if shape == "a text with answers":
        return [{"role": "user", "content": prompt[0]}], sides
    return _shared_prefix(*sides)


def _plain(turns: list[Any]) -> list[Turn]:
    return [plain(turn) for turn in turns]


def is_transcript(text: str) -> bool:
    return text.startswith(("\n\nHuman:", "Human:"))


def turns_of_transcript(text: str) -> list[Turn]:
    """The turns of a transcript; the one space after a speaker's colon belongs to the form, all else to the text."""
    before, *parts = SPEAKER.split(text if text.startswith("\n\n") else f"\n\n{text}")
    if before.strip():
        raise ShapeError('one of chosen and rejected is a transcript, the other does not begin with "Human:"')
    turns = [{"role": SPEAKER_ROLE[who], "content": said} for who, said in zip(parts[::2], parts[1::2], strict=True)]
    for place, turn in enumerate(turns, start=1):
        _check_turn(f"turn {place} of the transcript", turn, first=place == 1)
    return turns


def _last_turns(sides: list[list[Turn]], prompt: int) -> tuple[list[Turn], list[str]]:
    """Both conversations without their last turn, which must be the same, and the last turns."""
    for name, turns in zip(SIDES, sides, strict=True):
        if len(turns) < 2 or turns[-1]["role"] != "assistant":
            raise ShapeError(f"{name} has to end with an assistant turn that answers something before it")
        if prompt and len(turns) != prompt + 1:
            raise ShapeError(f"{name} has {len(turns) - prompt} turns; an answer to a prompt is one assistant turn")
    shared, other = sides[0][:-1], sides[1][:-1]
    if shared != other:
        raise ShapeError("chosen and rejected differ before the last turn: there is no shared prompt that both answer")
    if shared[-1]["role"] != "user":
        raise ShapeError(f"the turn before the answer is of the role {shared[-1]['role']}; it has to be the user's")
    return shared, [turns[-1]["content"] for turns in sides]


def _shared_prefix(chosen: str, rejected: str) -> tuple[list[Turn], list[str]]:
    if chosen == rejected:
        raise ShapeError("chosen and rejected are equal: such a pair says nothing; remove it")
    length = min(len(chosen.rstrip()), len(rejected.rstrip()))
    shared = next((place for place in range(length) if chosen[place] != rejected[place]), length)
    cut = max((place for place in range(shared) if chosen[place].isspace()), default=0)
    prompt = chosen[:cut].rstrip()
    if not prompt.strip():
        raise ShapeError("chosen and rejected have no shared prefix that could be the prompt; add a column prompt")
    return [{"role": "user", "content": prompt}], [text[cut:].lstrip() for text in (chosen, rejected)]
