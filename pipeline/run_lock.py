"""One run at a time in a workspace: `data/.run.lock`.

The lock is the system's own (`flock`), so that it is free as soon as its holder is gone, however it went. What the file
holds says who has it, for people and for the stages that the holder starts itself. A second file, `data/.work.lock`, is
shared by the processes that do the work: whoever takes the run lock waits until those of a killed run have noticed and
ended, a second at most, so that nothing is written by two.
"""

import fcntl
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stages.common.disk import telling
from stages.common.errors import StageError
from stages.common.paths import DATA
from stages.common.processes import descends_from, lives, own_identity

RUN_LOCK = DATA / ".run.lock"
WORK_LOCK = DATA / ".work.lock"
HOLDER_VARIABLE = "RLOO_RUN"  # in the environment of what a run starts: the identity of the process that has the lock
GRACE_SECONDS = 2.0  # a stage of a killed `dvc repro` ends by itself in less
LEFTOVER_SECONDS = 15.0
POLL_SECONDS = 0.05


class BusyError(StageError):
    """Another run is at work in this workspace; the message says which, and since when."""


@contextmanager
def run_lock(command: str, wait: bool = False) -> Iterator[None]:
    """Have the workspace for the duration of the block, or raise a BusyError; with `wait`, say so and wait instead.

    Inside the block, and in the processes that it starts, the same lock is entered again without waiting.
    """
    if is_ours():
        yield
        return
    with _opened(RUN_LOCK) as file:
        _take(file, command, wait)
        before = os.environ.get(HOLDER_VARIABLE)
        os.environ[HOLDER_VARIABLE] = own_identity()
        try:
            _write(file, command)
            _wait_for_leftovers()
            yield
        finally:
            _restore(before)
            file.truncate(0)


@contextmanager
def at_work() -> Iterator[None]:
    """For a process that does a stage's work: until the block ends, no other run begins."""
    with _opened(WORK_LOCK) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def is_ours() -> bool:
    """Whether this process, or one that it was started by, has the lock.

    The environment alone is not believed: a shell may keep it for longer than the run.
    """
    told = os.environ.get(HOLDER_VARIABLE)
    if told is None or not lives(told) or holder().get("process") != told:
        return False
    return told == own_identity() or descends_from(int(told.partition("-")[0]))


def holder() -> dict[str, Any]:
    """What the file says of who has the lock: process, command, since; empty if it says nothing."""
    try:
        found = json.loads(RUN_LOCK.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with telling(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    with file:
        yield file


def _free(file: Any, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take(file: Any, command: str, wait: bool) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    told = ""
    while not _free(file):
        if time.monotonic() > deadline:
            if not wait:
                raise BusyError(f"{described()}. {command} can run when that has ended")
            if described() != told:
                told = described()
                print(f"rloo: {told}; waiting for it to end", file=sys.stderr, flush=True)
        time.sleep(POLL_SECONDS)


def described() -> str:
    """Who has the lock, for people."""
    found = holder()
    if not found:
        return "another run is at work in this folder"
    pid = str(found["process"]).partition("-")[0]
    return f"{found['command']} (process {pid}) is at work in this folder since {found['since']}"


def _write(file: Any, command: str) -> None:
    with telling(RUN_LOCK):
        _describe(file, command)


def _describe(file: Any, command: str) -> None:
    file.truncate(0)
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    file.write(json.dumps({"process": own_identity(), "command": command, "since": since}) + "\n")
    file.flush()


def _wait_for_leftovers() -> None:
    """Processes of a run that was killed end by themselves; until then they may still write."""
    deadline = time.monotonic() + LEFTOVER_SECONDS
    with _opened(WORK_LOCK) as file:
        while not _free(file):
            if time.monotonic() > deadline:
                raise BusyError(
                    f"a process of a run that has ended still works in this folder; `lsof {WORK_LOCK}` shows it"
                )
            time.sleep(POLL_SECONDS)


def _restore(before: str | None) -> None:
    with suppress(KeyError):
        del os.environ[HOLDER_VARIABLE]
    if before is not None:
        os.environ[HOLDER_VARIABLE] = before
