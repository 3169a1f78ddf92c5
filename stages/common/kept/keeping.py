"""Where the stage that runs keeps what it has finished, how often it does, and when that goes.

    data/.cache/resume/<stage>/<name>/<kind>.<key>/...

At most every `resume.every_seconds`, so that a short stage writes nothing. All is removed when the stage has published
what it makes. What a stage leaves that nobody ran to its end is removed after a week, when another one starts.

One stage runs in a process at a time; it is found here and not handed down, as most of what it keeps lies far below it.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stages.common.fingerprint import code_hash
from stages.common.journal import Journal
from stages.common.paths import RESUME

WEEK = 7 * 24 * 3600.0
STAGES = Path(__file__).parents[2]  # the code that this process runs, wherever its working folder is

Rooms = Sequence[str]  # folders of `stages`

_running: list["Keeping"] = []


class Keeping:
    """Of one run of one stage."""

    def __init__(self, stage: str, name: str, every_seconds: float, journal: Journal) -> None:
        self.folder = RESUME / stage / name
        self.every_seconds = every_seconds
        self.journal = journal
        self.code = code_of(
            sorted(path.name for path in STAGES.iterdir() if path.is_dir())
        )  # before the stage's own code is imported
        self._last = time.monotonic()
        self._flushes: dict[str, tuple[Rooms, Callable[[], None]]] = {}
        self._told: set[str] = set()

    def code_of(self, rooms: Rooms) -> dict[str, str]:
        return {room: self.code[room] for room in rooms}

    def due(self) -> bool:
        return time.monotonic() - self._last >= self.every_seconds

    def add_flush(self, key: str, rooms: Rooms, flush: Callable[[], None]) -> None:
        """What writes the finished parts of one work that no file holds yet."""
        self._flushes[key] = rooms, flush

    def flush(self) -> None:
        """Write the finished parts of all works; the next time is counted from here."""
        for rooms, flush in self._flushes.values():
            self.attempt(rooms, flush)
        self._last = time.monotonic()

    def attempt(self, rooms: Rooms, write: Callable[[], None]) -> None:
        """Write, and go on where that fails: a full disk must not end a stage that could do without.

        Not once the code of the rooms at work has changed on disk: it might be the new one that was imported.
        """
        if self.code_of(rooms) != code_of(rooms):
            self.tell("its code has changed since it started: nothing more is kept for a run that is killed")
            return
        try:
            write()
        except Exception as error:  # of the file system, or of the library that writes, which has its own
            text = f"finished work cannot be kept in {self.folder} ({error}); the stage goes on without"
            self.tell(text, once="cannot be kept")  # the error may name another file each time

    def tell(self, text: str, once: str | None = None) -> None:
        """Say it once; of several texts that have `once` in common the first."""
        if (once or text) not in self._told:
            self._told.add(once or text)
            self.journal.say(text)

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def code_of(rooms: Rooms) -> dict[str, str]:
    """Hash of each room of `stages`, as it is on disk now."""
    return {room: code_hash(STAGES / room) for room in rooms}


@contextmanager
def keeping(stage: str, name: str, every_seconds: float, journal: Journal) -> Iterator[None]:
    """Keep what the block finishes, until the block has come to its end."""
    sweep()
    mine = Keeping(stage, name, every_seconds, journal)
    _running.append(mine)
    try:
        yield
    except BaseException:
        mine.flush()  # whatever ended it, what is finished is finished
        raise
    else:
        mine.clear()
    finally:
        _running.remove(mine)


def current() -> Keeping | None:
    """Of the stage that runs; None where none does, as in a test of a function."""
    return _running[-1] if _running else None


def sweep() -> None:
    """Remove what stages left a week ago or earlier and nothing went on with."""
    for folder in RESUME.glob("*/*"):
        try:
            newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
        except OSError:  # another process removes it
            continue
        if time.time() - newest > WEEK:
            shutil.rmtree(folder, ignore_errors=True)
