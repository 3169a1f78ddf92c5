"""Following a stage's journal while it runs, for whatever shows its progress."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

from pipeline.door import StageId
from stages.common.journal import journal_path

Record = dict[str, Any]


class Tail:
    """The records that are new since the last look. A stage that starts puts a new file in the place of the old one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first = self._first_line()
        self.offset = path.stat().st_size if self.first else 0  # what an earlier run has left there is not new

    def _first_line(self) -> bytes:
        """When it was started, and by which process: the name and even the inode may be those of an earlier run."""
        try:
            with self.path.open("rb") as file:
                return file.readline()
        except FileNotFoundError:
            return b""

    def new(self) -> list[Record]:
        """Records in the order they were written; a line that is still being written comes next time."""
        first = self._first_line()
        if not first.endswith(b"\n"):
            return []
        if first != self.first:
            self.first, self.offset = first, 0
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                text = file.read()
        except FileNotFoundError:  # just being replaced
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


@contextmanager
def followed(stage: StageId, seconds: float, hear: Callable[[list[Record]], None]) -> Iterator[None]:
    """While the block runs, call `hear` every so many seconds with the new records, none perhaps; once more at its end.

    It is called in another thread, in this one's context, so that Prefect knows which task it belongs to.
    """
    done = threading.Event()
    tail = Tail(journal_path(stage.stage, stage.name))

    def follow() -> None:
        while not done.wait(seconds):
            hear(tail.new())
        hear(tail.new())

    follower = threading.Thread(target=copy_context().run, args=(follow,), daemon=True)
    follower.start()
    try:
        yield
    finally:
        done.set()
        follower.join()
