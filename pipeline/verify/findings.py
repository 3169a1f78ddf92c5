"""What is not as it should be with a file, and who makes it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["damaged", "not listed", "missing", "no manifest", "pruned"]
BAD: frozenset[State] = frozenset({"damaged", "not listed"})  # what readers refuse; others are not made yet, or gone


@dataclass(frozen=True)
class Finding:
    """`made_by`: the DVC stage where a lock knows it, else the stage and its name, such as `update i0003`."""

    state: State
    path: Path
    made_by: str
    detail: str = ""

    @property
    def is_bad(self) -> bool:
        return self.state in BAD
