"""The stage that runs: what it has read and published so far, which its manifest will say.

It is held by context, so that a worker runs stages one after the other, and code outside stages has none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from stages.common.errors import StageError


@dataclass
class Record:
    """Of one run of one stage: `written` in order, `read` by path with the hash that was checked."""

    stage: str
    name: str
    written: list[Path] = field(default_factory=list)
    read: dict[str, str] = field(default_factory=dict)

    def owns(self, path: Path) -> bool:
        """Whether this very stage has published the file or folder, or what it lies in."""
        return any(target == path or target in path.parents for target in self.written)

    def note(self, path: Path, found: str) -> None:
        """The stage has read a file with this hash; twice with different ones is an error."""
        if self.read.setdefault(str(path), found) != found:
            raise StageError(f"{path} changed while {self.stage} {self.name} ran; run it again")


_running: ContextVar[Record | None] = ContextVar("running", default=None)


def running() -> Record | None:
    """The record of the stage that runs; None outside of stages."""
    return _running.get()


@contextmanager
def recording(stage: str, name: str) -> Iterator[Record]:
    """The block is a run of the stage."""
    record = Record(stage, name)
    token = _running.set(record)
    try:
        yield record
    finally:
        _running.reset(token)
