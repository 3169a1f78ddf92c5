"""What a stage says while it works: a line now and then for people, a JSON Lines file for whoever watches.

Timings live here and not in the tables: a table is the same bytes each time it is computed, a duration is not.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from stages.common.errors import StageError
from stages.common.paths import LOGS

PRINT_EVERY_SECONDS = 5.0
RECORD_EVERY_SECONDS = 0.25
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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._record({"event": "started", "run": token_hex(8), "pid": os.getpid(), "time": time.time()})

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def progress(self, done: int, total: int, unit: str) -> None:
        """Say how far the work is; cheap enough to call for every item."""
        now = time.monotonic()
        if done < total and now - self._recorded < RECORD_EVERY_SECONDS:
            return
        self._recorded = now
        self._record({"event": "progress", "done": done, "total": total, "unit": unit})
        if now - self._printed >= PRINT_EVERY_SECONDS:
            self._printed = now
            self.say(f"{done}/{total} {unit}")

    def say(self, text: str) -> None:
        """A line for people, unless a front end that draws its own progress asked for quiet."""
        if not os.environ.get(QUIET_VARIABLE):
            print(f"{self.title}: {text}", flush=True)

    def finish(self) -> None:
        self._record({"event": "finished", "seconds": round(self.seconds, 3)})
        self.say(f"done in {self.seconds:.1f} s")

    def fail(self, error: BaseException) -> None:
        told = str(error) if isinstance(error, StageError) else f"{type(error).__name__}: {error}"
        self._record({"event": "failed", "error": told})

    def _record(self, record: dict[str, Any]) -> None:
        _append(self.path, record)


def _append(path: Path, record: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def reject(stage: str, name: str, error: str) -> None:
    """Say of a stage that has finished that its results do not count, and why."""
    _append(journal_path(stage, name), {"event": "failed", "error": error})


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
