"""Which process: its id alone is given to another one sooner or later, its id and its start are not.

Where there is /proc, the start is counted in ticks since the machine started, so that no change of the clock moves it.
"""

import os
from functools import cache
from pathlib import Path

_HAS_PROC = Path("/proc/self/stat").exists()


def identity(pid: int) -> str | None:
    """`4711-86400`, the process and its start; None if there is no such process, or only its exit status is left."""
    stat = _stat(pid)
    if stat is None:
        return None if _HAS_PROC else _elsewhere(pid)
    return None if stat[0] in "ZX" else f"{pid}-{stat[19]}"


def _stat(pid: int) -> list[str] | None:
    """State, parent, ... and start, as Linux tells them; the name before them may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _elsewhere(pid: int) -> str | None:
    import psutil

    try:
        return f"{pid}-{round(psutil.Process(pid).create_time() * 100)}"
    except psutil.NoSuchProcess:
        return None


@cache
def _own(pid: int) -> str:
    return identity(pid) or f"{pid}-0"


def own_identity() -> str:
    """Of this process, also after a fork."""
    return _own(os.getpid())


def lives(process: str) -> bool:
    """Whether the process with this identity is still there; False for what is no identity."""
    pid = process.partition("-")[0]
    return pid.isdigit() and identity(int(pid)) == process


def parent_of(pid: int) -> int | None:
    """The parent's id; None if the process is gone."""
    stat = _stat(pid)
    if stat is not None:
        return int(stat[1])
    import psutil

    try:
        return int(psutil.Process(pid).ppid())
    except psutil.NoSuchProcess:
        return None


def descends_from(ancestor: int) -> bool:
    """Whether this process was started by the process `ancestor`, directly or through others."""
    pid: int | None = os.getpid()
    while pid is not None and pid > 1:
        pid = parent_of(pid)
        if pid == ancestor:
            return True
    return False
