"""Runs generated code in locked child processes, and says whether it passes a test.

A test that calls functions takes two processes. One runs the generated code; the other runs the test, and reaches the
functions through pipes (stages/score/peer.py). So the verdict comes from a process in which no line of the generated
code has run: it can neither read the expected values nor print, patch or pretend a result. A program is one process,
and what it prints is compared here.

Both are locked before they compile anything (stages/score/lockdown.py), start in an empty folder of their own with an
empty environment, and are killed when the time is up.
"""

import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.score.clear_folder import clear

CHILD = Path(__file__).with_name("untrusted.py")
LIBRARIES = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/dev/zero")
START_SECONDS = 30.0
MAX_OUTPUT = 1 << 20  # bytes that a program may print
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


Running = tuple[subprocess.Popen[bytes], int]


class SandboxError(RuntimeError):
    """A locked process could not be had; nothing has been judged."""


@dataclass(frozen=True)
class Jail:
    """Limits of a test: wall-clock seconds, megabytes of memory; `packages`: installed packages may be imported.

    `unlocked`: limits of time and memory only, for machines that have no lock.
    """

    seconds: float
    memory_mb: int
    packages: bool = False
    unlocked: bool = False


def problem() -> str | None:
    """Why this machine cannot lock files and network; None if it can. Tried with a process."""
    if sys.platform != "linux":
        return f"files and network can be locked on Linux only, this is {sys.platform}"
    if not _readable(False):
        return f"Python's own folder is {sys.base_prefix}: reading it could not be told from reading everything"
    try:
        output_of("", "", Jail(20.0, 512))
    except SandboxError as error:
        return str(error)
    return None


def passes_test(code: str, test: str, jail: Jail) -> str:
    """passed, failed, timeout, or ended if the test itself left its process."""
    asked, asks = os.pipe()
    answered, answers = os.pipe()
    verdict, says = os.pipe()
    ends = [asked, answers, answered, asks, says]
    mine = {"role": "code", "source": code, "receive": asked, "send": answers}
    its = {"role": "test", "source": test, "receive": answered, "send": asks, "verdict": says}
    try:
        with _child(mine, jail, ends[:2]) as coder, _child(its, jail, ends[2:]) as tester:
            while ends:  # the children have theirs: these would keep the pipes open
                os.close(ends.pop())
            _started(coder)
            _started(tester)
            text = _read(verdict, jail.seconds, 1 << 10)
    finally:
        for descriptor in (*ends, verdict):
            os.close(descriptor)
    if text is None:
        return "timeout"
    return str(json.loads(text)["outcome"]) if text else "failed"


def output_of(code: str, given: str, jail: Jail) -> tuple[str, str]:
    """What the program prints for the input, and how it ended: passed, failed or timeout."""
    with _child({"role": "program", "source": code}, jail, given=given) as running:
        child = running[0]
        assert child.stdout is not None
        _started(running)
        start = time.monotonic()
        text = _read(child.stdout.fileno(), jail.seconds, MAX_OUTPUT)
        if text is None:
            return "", "timeout"
        status = _status(child, jail.seconds - (time.monotonic() - start)) if len(text) < MAX_OUTPUT else 1
        if status is None:
            return "", "timeout"
    return text.decode("utf-8", errors="replace"), "passed" if status == 0 else "failed"


def _read(descriptor: int, seconds: float, most: int) -> bytes | None:
    """Everything until the other end closes, or the first `most` bytes; None if that takes longer."""
    deadline, text = time.monotonic() + seconds, b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(text) < most:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return None
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                return text
            text += piece
    return text[:most]


def _started(running: Running) -> None:
    """Wait until the child has locked itself; before that nothing of the time limit is used up."""
    text = _read(running[1], START_SECONDS, 1 << 10)
    if text != b"locked":
        said = "it did not start in time" if text is None else text.decode(errors="replace") or "it ended"
        raise SandboxError(f"a process for generated code could not lock files and network: {said}")


@contextmanager
def _child(request: dict[str, Any], jail: Jail, passed: Sequence[int] = (), given: str = "") -> Iterator[Running]:
    """A running child, killed and cleared away at the end of the block, and where it says that it has locked itself."""
    folder = tempfile.mkdtemp(prefix="rloo-code-")
    started, starts = os.pipe()
    request |= {"cpu_seconds": math.ceil(jail.seconds) + 1, "memory": jail.memory_mb << 20, "unlocked": jail.unlocked}
    request |= {"readable": _readable(jail.packages), "started": starts}
    try:
        child = _spawn(json.dumps(request), given, folder, jail.packages, (*passed, starts))
        os.close(starts)
        starts = -1
        try:
            yield child, started
        finally:
            _kill(child)
    finally:
        for descriptor in (started, starts):
            if descriptor >= 0:
                os.close(descriptor)
        clear(folder)


def _spawn(request: str, given: str, folder: str, packages: bool, passed: Sequence[int]) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as read:
        for file, text in ((asked, request), (read, given)):
            file.write(text.encode("utf-8", errors="replace"))
            file.seek(0)
        return subprocess.Popen(
            # not -I: it would ignore the seed of hashes, without which sets print in a new order each time
            [sys.executable, "-s", "-P", *([] if packages else ["-S"]), str(CHILD), str(asked.fileno())],
            stdin=read,
            stdout=subprocess.PIPE if json.loads(request)["role"] == "program" else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=ENVIRONMENT,
            pass_fds=(asked.fileno(), *passed),
            start_new_session=True,
        )


def _status(child: subprocess.Popen[bytes], seconds: float) -> int | None:
    """0 if it ended well, in time, and something else if not; None if it is still there. It is not waited for: until
    `_kill` has killed its group, the group's number must not be given to others.
    """
    descriptor = os.pidfd_open(child.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                return None
    finally:
        os.close(descriptor)
    ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else 1


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The whole group, and only then its leader is waited for."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _readable(packages: bool) -> list[str]:
    """Folders of Python and of the system's libraries; none if Python lies in the root folder."""
    roots = {os.path.realpath(path) for path in ([sys.base_prefix, sys.prefix] if packages else [sys.base_prefix])}
    return [] if "/" in roots else sorted({*roots, *LIBRARIES})
