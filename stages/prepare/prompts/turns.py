"""The column `prompt`: in all rows a text, or in all rows a conversation that the user ended."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from stages.common.rows import FileError, row_error
from stages.common.turns import TURN, Turn, plain, problem_of
from stages.prepare.prompts.columns import Part


def prompts_of(part: Part) -> list[str] | list[list[Turn]]:
    """Every row's prompt; an error names the row whose prompt is none."""
    dtype, values = part.frame["prompt"].dtype, part.frame["prompt"].to_list()
    if dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        return [_text(part, number, value) for number, value in zip(part.numbers, values, strict=True)]
    if isinstance(dtype, pl.List):
        return [_conversation(part, number, value) for number, value in zip(part.numbers, values, strict=True)]
    raise FileError(f"{part.place}: column prompt is {dtype}; a prompt is a text or a list of {TURN}")


def _text(part: Part, number: int, value: str | None) -> str:
    if value is None:
        raise row_error(part.place, number, "prompt is null; fill it in or remove the row")
    if not value.strip():
        raise row_error(part.place, number, "prompt is empty; fill it in or remove the row")
    return value


def _conversation(part: Part, number: int, value: Sequence[Any] | None) -> list[Turn]:
    if not value:
        told = "null" if value is None else "a conversation without turns"
        raise row_error(part.place, number, f"prompt is {told}; fill it in or remove the row")
    turns = []
    for place, turn in enumerate(value, start=1):
        problem = problem_of(turn, first=place == 1)
        if problem:
            raise row_error(part.place, number, f"prompt, turn {place}: {problem}")
        turns.append(plain(turn))
    if turns[-1]["role"] != "user":
        told = f"the last turn of prompt is of the role {turns[-1]['role']}, and has to be the user's"
        raise row_error(part.place, number, f"{told}: leave out the answer, which the model is to give")
    return turns
