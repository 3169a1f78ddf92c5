"""What a stage says while it works: a line now and then for people, a JSON Lines file for whoever watches.

Timings live here and not in the tables: a table is the same bytes each time it is computed, a duration is not.
"""

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stages.common.disk import DiskError, telling
from stages.common.errors import StageError, TransientError
from stages.common.paths import LOGS

PRINT_EVERY_SECONDS = 5.0
RECORD_EVERY_SECONDS = 0.25
SAID_CHARACTERS = 2000
QUIET_VARIABLE = "RLOO_QUIET"


def journal_path(stage: str, name: str) -> Path:
    return LOGS / name / f"{stage}.jsonl"


class Journal:
    """Progress of one run of one stage, written to `data/logs/<name>/<stage>.jsonl`."""

    def __init__(self, stage: str, name: str) -> None:
        self.title = f"{stage} {name}"
        self.path = journal_path(stage, name)
        self._started = time.monotonic()
        self._printed = self._recorded = 0.0
        with telling(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)
        self._record({"event": "started", "run": os.urandom(8).hex(), "pid": os.getpid(), "time": time.time()})

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While libraries are imported. The stage's seconds count from there on: who runs several imports them once."""
        self._record({"event": "loading"})
        yield
        self._started = time.monotonic()

    def progress(self, done: int, total: int, unit: str) -> None:
        """Say how far the work is; cheap enough to call for every item."""
        now = time.monotonic()
        if done < total and now - self._recorded < RECORD_EVERY_SECONDS:
            return
        self._recorded = now
        with suppress(DiskError):  # whether there is room counts when results are written
            self._record({"event": "progress", "done": done, "total": total, "unit": unit})
        if now - self._printed >= PRINT_EVERY_SECONDS:
            self._printed = now
            self._print(f"{done}/{total} {unit}")

    def resumed(self, done: int, total: int, unit: str) -> None:
        """Say what an earlier run of the stage, one that was killed, had finished."""
        self._record({"event": "resumed", "done": done, "total": total, "unit": unit})
        self.say(f"resumed: {done} of {total} {unit} are there")

    def say(self, text: str) -> None:
        """A line for people; a front end that draws its own progress reads it in the journal."""
        self._record({"event": "said", "text": text[:SAID_CHARACTERS]})
        self._print(text)

    def _print(self, text: str) -> None:
        """On this process's own output, unless a front end asked for quiet."""
        if not os.environ.get(QUIET_VARIABLE):
            print(f"{self.title}: {text}", flush=True)

    def finish(self) -> None:
        self._record({"event": "finished", "seconds": round(self.seconds, 3)})
        self._print(f"done in {self.seconds:.1f} s")

    def fail(self, error: BaseException) -> None:
        told = str(error) if isinstance(error, StageError) else f"{type(error).__name__}: {error}"
        record = {"event": "failed", "error": told, "transient": isinstance(error, TransientError)}
        try:
            self._record(record)
        except DiskError:
            self._record_in_place(record)

    def _record(self, record: dict[str, Any]) -> None:
        _append(self.path, record)

    def _record_in_place(self, record: dict[str, Any]) -> None:
        """On a full disk, how the stage ended goes where its progress was: that room the file has already."""
        with suppress(OSError), self.path.open("r+b", buffering=0) as file:
            file.readline()
            file.write((json.dumps(record) + "\n").encode())
            file.truncate(file.tell())


def _append(path: Path, record: dict[str, Any]) -> None:
    """Add a line, whole or not at all; a DiskError if there is no room for it."""
    line = (json.dumps(record) + "\n").encode()
    with telling(path), path.open("ab", buffering=0) as file:
        size = file.tell()
        if file.write(line) != len(line):
            file.truncate(size)
            raise OSError(errno.ENOSPC, "no room for a whole line", str(path))


def reject(stage: str, name: str, error: str) -> None:
    """Say of a stage that has finished that its results do not count, and why."""
    _append(journal_path(stage, name), {"event": "failed", "error": error, "transient": False})


@contextmanager
def journalled(stage: str, name: str) -> Iterator[Journal]:
    """Start a journal, and end it as finished or failed."""
    journal = Journal(stage, name)
    try:
        yield journal
    except BaseException as error:
        journal.fail(error)
        raise
    journal.finish()


def read_journal(stage: str, name: str) -> list[dict[str, Any]]:
    """The records written so far, oldest first; a line that is still being written is left out."""
    path = journal_path(stage, name)
    if not path.exists():
        return []
    records: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def run_of(stage: str, name: str) -> str | None:
    """Which run of the stage the journal is of: a mark of its own for each, as clocks may be set back."""
    records = read_journal(stage, name)
    return str(records[0].get("run")) if records else None


def seconds_of(stage: str, name: str) -> float | None:
    """How long the stage took when it was last computed here; None if it was not, or did not finish."""
    records = read_journal(stage, name)
    return float(records[-1]["seconds"]) if records and records[-1]["event"] == "finished" else None
