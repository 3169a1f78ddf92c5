"""The shapes that a demonstration may have in a file, as TRL's SFTTrainer knows them, and a check of each row.

text: `prompt` and `completion`, both strings.
turns: `prompt` and `completion`, both lists of {role, content}; the completion is one turn of the assistant.
messages: `messages`, a list of {role, content}: the last turn is the completion, what comes before it the prompt.

One file has one shape. Nothing is repaired: a row that is none of these stops the stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stages.common.turns import Turn, kind_of, plain, problem_of
from stages.sft.records import Record

COLUMNS = ("prompt", "completion", "messages")
EXPECTED = (
    "expected `prompt` and `completion` (two strings, or two lists of {role, content}), or `messages` (one such list)"
)


@dataclass(frozen=True)
class Demonstration:
    """A row that is in order: the prompt, a text or the turns so far, and what the assistant says next."""

    record: Record
    prompt: str | list[Turn]
    completion: str


def demonstrations_of(records: Sequence[Record]) -> list[Demonstration]:
    """Every row of the file, all of the first one's shape."""
    first = shape_of(records[0])
    for record in records:
        if shape_of(record) != first:
            other = f"holds {shape_of(record)}, but row {records[0].row} holds {first}"
            raise record.wrong(f"{other}; bring all rows of a file to one shape")
    return [demonstration_of(record, first) for record in records]


def unread(records: Sequence[Record]) -> list[str]:
    """Columns that are not part of any shape."""
    return sorted({name for record in records for name in record.values} - set(COLUMNS))


def shape_of(record: Record) -> str:
    """`text`, `turns` or `messages`."""
    present = [name for name in COLUMNS if name in record.values]
    if present not in (["messages"], ["prompt", "completion"]):
        raise record.wrong(f"{EXPECTED}; found {', '.join(map(repr, record.values)) or 'nothing'}")
    for name in present:
        if record.values[name] is None:
            raise record.wrong(f"{name} is null; fill it in or remove the row")
    if present == ["messages"]:
        _expect(record, "messages", list)
        return "messages"
    kinds = {type(record.values[name]) for name in present}
    if kinds not in ({str}, {list}):
        found = ", ".join(f"{name} is {kind_of(record.values[name])}" for name in present)
        raise record.wrong(f"{found}; both have to be strings, or both lists of {{role, content}}")
    return "text" if kinds == {str} else "turns"


def demonstration_of(record: Record, shape: str) -> Demonstration:
    if shape == "text":
        prompt: str | list[Turn] = record.values["prompt"]
        completion: str = record.values["completion"]
    else:
        prompt, completion = _conversation(record, shape)
    if not prompt.strip() if isinstance(prompt, str) else not prompt:
        raise record.wrong("the prompt is empty; fill it in or remove the row")
    if not completion.strip():
        raise record.wrong("the completion is empty; fill it in or remove the row")
    return Demonstration(record, prompt, completion)


def _conversation(record: Record, shape: str) -> tuple[list[Turn], str]:
    """Prompt and completion of turns: the prompt ends with the user's, the completion is the assistant's."""
    if shape == "messages":
        turns = _turns(record, "messages")
        prompt, answers = turns[:-1], turns[-1:]
    else:
        prompt, answers = _turns(record, "prompt"), _turns(record, "completion")
    if [turn["role"] for turn in answers] != ["assistant"]:
        found = ", ".join(turn["role"] for turn in answers) or "nothing"
        raise record.wrong(f"the completion has to be one turn of the assistant, at the end; found {found}")
    if prompt and prompt[-1]["role"] != "user":
        raise record.wrong(f"the turn before the completion has to be the user's; found {prompt[-1]['role']}")
    return prompt, answers[0]["content"]


def _turns(record: Record, column: str) -> list[Turn]:
    """The turns of a column. Those of a completion go on from the prompt's."""
    found: list[Turn] = []
    for number, turn in enumerate(_expect(record, column, list), start=1):
        problem = problem_of(turn, first=number == 1 and column != "completion")
        if problem:
            raise record.wrong(f"{column}, turn {number}: {problem}")
        found.append(plain(turn))
    return found


def _expect(record: Record, column: str, kind: type) -> Any:
    value = record.values[column]
    if not isinstance(value, kind):
        raise record.wrong(f"{column} is {kind_of(value)}; it has to be a list of {{role, content}}")
    return value
