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
CHILDREN = "/proc/{pid}/task/{task}/children"
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
    known = None if Path(CHILDREN.format(pid=os.getpid(), task=os.getpid())).exists() else _by_parent()
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        children = _children(parent) if known is None else known.get(parent, [])
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(CHILDREN.format(pid=pid, task=task)).read_text().split())
    except OSError:  # it ended meanwhile
        return found
    return found


def _by_parent() -> dict[int, list[int]]:
    """The children of all processes, where the kernel keeps no list of them (CONFIG_PROC_CHILDREN)."""
    found: dict[int, list[int]] = {}
    for pid in _all():
        with suppress(OSError, IndexError, ValueError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(pid)
    return found


def _all() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


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


def kill_session(leader: int) -> None:
    """Kill a child of this process that was not waited for, and its process group, of which it is the leader."""
    with suppress(OSError):
        os.killpg(leader, signal.SIGKILL)
    _signal(leader, signal.SIGKILL)


def kill_marked(mark: str) -> None:
    """Kill whatever was started with the mark in its environment: what is left of a supervisor that was killed. Ends
    when nothing was found twice, as the environment of a process that is just being started cannot be seen.
    """
    deadline, nothing = time.monotonic() + KILL_SECONDS, 0
    while nothing < 2 and time.monotonic() < deadline:
        found = _marked(mark)
        nothing = 0 if found else nothing + 1
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                _signal(pid, number)
        time.sleep(0.005)


def _marked(mark: str) -> list[int]:
    if not LINUX:
        import psutil

        found = psutil.process_iter(["environ"])
        return [each.pid for each in found if mark in (each.info["environ"] or {}).values()]
    return [pid for pid in _all() if _has_mark(pid, mark)]


def _has_mark(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # another user's, or it has ended
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(OSError):  # it has ended, or is another user's
        os.kill(pid, number)
