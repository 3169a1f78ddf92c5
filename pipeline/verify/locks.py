"""What DVC's locks say: which stage made a path, and under which name its bytes lie in DVC's cache.

The open window's lock is the project's `dvc.lock`; finished windows keep theirs beside their plans.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from stages.common.errors import StageError
from stages.common.paths import WINDOWS

LOCK = Path("dvc.lock")
FOLDER = ".dir"  # ends the name of an object that lists a folder


@dataclass(frozen=True)
class Out:
    """A file as a lock has it: the DVC stage that makes it, and the name (MD5) of its object in the cache."""

    stage: str
    path: Path
    oid: str


@dataclass
class Locks:
    """All files of all locks. `of_path` is what should lie in the workspace; of several locks the open one counts."""

    of_path: dict[Path, Out] = field(default_factory=dict)
    of_object: dict[str, list[Out]] = field(default_factory=dict)

    def add(self, out: Out) -> None:
        self.of_path[out.path] = out
        self.of_object.setdefault(out.oid, []).append(out)


def read_locks(cache: Path) -> Locks:
    """Finished windows first. Files in folders are found through the cache's lists of them, where these are there."""
    locks = Locks()
    for lock in [*sorted(WINDOWS.glob("*/dvc.lock")), LOCK]:
        window = "" if lock == LOCK else f" of {lock.parent.name}"
        for stage, entry in (_read(lock).get("stages") or {}).items():
            for out in entry.get("outs", ()):
                if "md5" in out:
                    _add(locks, Out(f"{stage}{window}", Path(out["path"]), str(out["md5"])), cache)
    return locks


def _read(lock: Path) -> dict[str, Any]:
    if not lock.exists():
        return {}
    try:
        found: dict[str, Any] = yaml.load(lock.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    except yaml.YAMLError as error:
        raise StageError(f"{lock}: cannot be read as YAML: {error}; take it from git, or remove it") from None
    return found


def _add(locks: Locks, out: Out, cache: Path) -> None:
    locks.add(out)
    if out.oid.endswith(FOLDER):
        try:
            children = json.loads(object_path(cache, out.oid).read_bytes())
            found = [Out(out.stage, out.path / child["relpath"], str(child["md5"])) for child in children]
        except (OSError, ValueError, KeyError, TypeError):
            return  # not in the cache, or damaged, which a look at all objects shows
        for child in found:
            locks.add(child)


def object_path(cache: Path, oid: str) -> Path:
    """Where an object lies in the cache."""
    return cache / oid[:2] / oid[2:]
