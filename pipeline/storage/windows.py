"""The windows of a run as storage sees them: each has a plan and a lock, and the lock names every byte it left.

Which windows a run has, and where their locks are, is known to `pipeline.windows`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from pipeline.dvc_files import LOCK, locks
from pipeline.plan import Plan, read_plan
from pipeline.windows.files import end_file, saved_lock
from pipeline.windows.layout import belongs, windows
from stages.common import paths
from stages.common.errors import StageError
from stages.common.paths import is_iteration

FROM_LIBYAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it


@dataclass(frozen=True)
class Out:
    """One file or folder that a stage left, by the name and the hash in the lock."""

    stage: str  # update@i0003
    path: str
    md5: str  # of a folder it ends in .dir
    size: int  # bytes

    @property
    def iteration(self) -> str | None:
        """Of a stage of an iteration."""
        name = self.stage.partition("@")[2]
        return name if is_iteration(name) else None


@dataclass(frozen=True)
class Window:
    """A window with what its lock says; a stage that has not run yet is not in the lock."""

    plan: Plan
    stages: dict[str, dict[str, Any]]
    is_open: bool
    has_end: bool = True

    @property
    def name(self) -> str:
        return self.plan.window

    @property
    def outs(self) -> list[Out]:
        return [out for name, entry in self.stages.items() for out in outs_of(name, entry)]

    @property
    def is_finished(self) -> bool:
        """A window that was left before its end is neither open nor finished."""
        return not self.is_open and self.has_end and self.trained == self.plan.names

    @property
    def trained(self) -> list[str]:
        """The iterations of the plan that have been trained."""
        return [name for name in self.plan.names if f"update@{name}" in self.stages]


def outs_of(stage: str, entry: dict[str, Any]) -> Iterator[Out]:
    """What a stage's entry in a lock names."""
    for out in entry.get("outs", ()):
        if "md5" in out:
            yield Out(stage, str(out["path"]), str(out["md5"]), int(out.get("size", 0)))


def read_lock(text: str | bytes, name: str) -> dict[str, dict[str, Any]]:
    """The stages of a lock file; `name` is for the message of a lock that cannot be read."""
    try:
        found = yaml.load(text, Loader=FROM_LIBYAML) or {}
        return {str(stage): dict(entry) for stage, entry in (found.get("stages") or {}).items()}
    except (yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        raise StageError(f"{name}: not a lock of DVC ({error}); `git checkout` the last good one") from None


def lock_at(path: Path) -> dict[str, dict[str, Any]]:
    """The stages of a lock file, none if there is no such file; parsed again only if it has changed."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return {}
    return _parsed(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=256)
def _parsed(path: Path, _: tuple[int, int, int]) -> dict[str, dict[str, Any]]:
    return read_lock(path.read_bytes(), str(path))


def read_windows() -> list[Window]:
    """The windows of the run that were begun, in order; and the open one. What was saved of a longer run, or of one
    with other windows, is of none.
    """
    opened = read_plan()
    found = []
    for plan in windows(opened):
        is_open = plan.number == opened.number
        stages = lock_at(LOCK if is_open else saved_lock(plan.window)) if is_open or belongs(plan) else {}
        if stages or is_open:
            found.append(Window(plan, stages, is_open, has_end=end_file(plan.window).exists()))
    return found


def all_locks() -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Every lock in the workspace by the name of its file: of all folders of windows, and of studies."""
    for lock in [*locks(), *sorted(paths.WINDOWS.glob("w*/dvc.lock"))]:
        yield str(lock), lock_at(lock)
