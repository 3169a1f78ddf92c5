"""How long parts of a stage take: a journal that remembers when it heard what."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module

from stages.common.journal import Journal
from stages.common.manifest import start, write_manifest
from stages.common.params import Params
from stages.common.record import recording
from stages.entry import WITHOUT_MODELS, models_of


@dataclass
class Timed:
    """A stage that ran: its seconds, and (seconds since its start, unit) of each progress it made."""

    seconds: float = 0.0
    marks: list[tuple[float, str]] = field(default_factory=list)

    def span(self, unit: str) -> tuple[float, float] | None:
        """When the unit was first and last heard of; None if it was not."""
        times = [at for at, heard in self.marks if heard.startswith(unit)]
        return (times[0], times[-1]) if times else None

    @property
    def tail(self) -> float:
        """Seconds after the last progress: the optimizer's step, and what is written."""
        return self.seconds - self.marks[-1][0] if self.marks else self.seconds


class TimedJournal(Journal):
    """Keeps the time of each call of `progress`."""

    def __init__(self, stage: str, name: str, timed: Timed) -> None:
        super().__init__(stage, name)
        self._timed = timed

    def progress(self, done: int, total: int, unit: str) -> None:
        self._timed.marks.append((self.seconds, unit))
        super().progress(done, total, unit)


def run_stage(stage: str, name: str, params: Params) -> Timed:
    """One ordinary stage in the working folder, with these params; its manifest lets others be run on it by hand."""
    timed = Timed()
    journal = TimedJournal(stage, name, timed)
    room = import_module(f"stages.{stage}.run")
    with recording(stage, name) as record:
        start(record)
        if stage in WITHOUT_MODELS:
            room.run(name, params, journal)
        else:
            room.run(name, params, models_of(params.compute), journal)
        write_manifest(record)
    timed.seconds = journal.seconds
    return timed


@contextmanager
def stopwatch(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Note how long the block took, whether or not it succeeded."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[what] = time.monotonic() - started
