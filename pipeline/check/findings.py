"""What a check found. Only errors that a user can mend are findings; anything else is a bug, and a traceback."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from stages.common.errors import StageError

Level = Literal["ok", "warning", "error"]
T = TypeVar("T")
EACH_OPTION = re.compile(r"\n(?=params\.yaml: )")  # a message on params.yaml has a line for each wrong option


@dataclass(frozen=True)
class Finding:
    """`place`: the stage, file or option; `text`: what is so there, and what to do about it."""

    level: Level
    place: str
    text: str


def attempt(findings: list[Finding], place: str, action: Callable[[], T]) -> T | None:
    """The action's result; None, and an error among the findings, if it raised a StageError."""
    try:
        return action()
    except StageError as error:
        told = {found.text for found in findings}
        texts = EACH_OPTION.split(str(error))
        findings += [Finding("error", place, text) for text in texts if text not in told]
        return None


def worst(findings: list[Finding]) -> Level:
    """The highest level there is."""
    levels = {found.level for found in findings}
    return "error" if "error" in levels else "warning" if "warning" in levels else "ok"
