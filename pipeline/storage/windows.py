"""The windows of a run as storage sees them: each has a plan and a lock, and the lock names every byte it left.

The open window is `pipeline/plan.yaml` with `dvc.lock`; finished ones are folders of `pipeline/windows/`. This is the
only module of `pipeline.storage` that knows so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.plan import Plan, read_plan
from stages.common import paths
from stages.common.errors import StageError
from stages.common.paths import is_iteration

LOCK = Path("dvc.lock")
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


def _window(plan: Path, lock: Path, *, is_open: bool) -> Window:
    stages = read_lock(lock.read_bytes(), str(lock)) if lock.exists() else {}
    return Window(read_plan(plan), stages, is_open, has_end=(plan.parent / "end.json").exists())


def finished_folders() -> list[Path]:
    """Of the windows that are not open, the first of the run first."""
    return sorted(folder for folder in paths.WINDOWS.glob("w*") if (folder / "plan.yaml").exists())


def read_windows() -> list[Window]:
    """All windows of the run in order. A reopened window has a folder still: what counts then is the open one."""
    opened = _window(paths.PLAN, LOCK, is_open=True)
    folders = [folder for folder in finished_folders() if folder.name != opened.name]
    finished = [_window(folder / "plan.yaml", folder / "dvc.lock", is_open=False) for folder in folders]
    return sorted([*finished, opened], key=lambda window: window.plan.number)


def all_locks() -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Every lock in the workspace by the name of its file, that of a reopened window's folder too."""
    for lock in [LOCK, *(folder / "dvc.lock" for folder in finished_folders())]:
        if lock.exists():
            yield str(lock), read_lock(lock.read_bytes(), str(lock))
