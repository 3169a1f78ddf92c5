"""Processes of the operating system: who descends from whom, how much memory they hold, and an end to all of them.

On Linux the supervisor is a subreaper: what a function starts and disowns, by a double fork or in a session of its own,
becomes the supervisor's child when its parent ends, and is found and killed with the rest. Elsewhere psutil looks for
children, and a process that was disowned escapes.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

LINUX = sys.platform == "linux"
SUBREAPER, PARENT_DEATH_SIGNAL = 36, 1  # of prctl
PAGE = os.sysconf("SC_PAGE_SIZE")
KILL_SECONDS = 10.0  # a process that does not end in so long hangs in the kernel


def _prctl(option: int, value: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    if LINUX:
        _prctl(SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends. Only where the parent forked it from a thread that lives on."""
    if LINUX:
        _prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, those that have ended but were not waited for among them."""
    if not LINUX:
        return _by_psutil(pid)
    found, waiting = [], [pid]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except OSError:  # it ended meanwhile
        return found
    return found


def _by_psutil(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def is_running(pid: int) -> bool:
    """Whether it has not ended, be it waited for or not."""
    if not LINUX:
        import psutil

        return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def memory_mb(pids: list[int], limit_mb: int) -> float:
    """Resident memory of the processes together. Only if it seems to be over the limit are pages that several of them
    share counted once, as that takes long to find out.
    """
    total = sum(map(_resident, pids)) / 2**20
    return total if total <= limit_mb or len(pids) < 2 else sum(map(_proportional, pids)) / 2**20


def _resident(pid: int) -> int:
    if not LINUX:
        import psutil

        return int(psutil.Process(pid).memory_info().rss) if psutil.pid_exists(pid) else 0
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident(pid)
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def reap() -> dict[int, int]:
    """Wait for all children that have ended: their wait statuses."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def kill_all() -> dict[int, int]:
    """Kill and wait for everything below this process, however fast it starts more: their wait statuses.

    What is killed is stopped first, so that it cannot go on forking while it is being looked for.
    """
    deadline, ended = time.monotonic() + KILL_SECONDS, reap()
    while (below := [pid for pid in descendants(os.getpid()) if pid not in ended]) and time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in below:
                _signal(pid, number)
        time.sleep(0.001)
        ended |= reap()
    return ended


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(OSError):  # it has ended, or is another user's
        os.kill(pid, number)
