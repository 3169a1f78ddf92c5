"""Putting DVC's own files right after a kill or a power cut, before anything is run.

dvc.lock       a part of one: the last whole copy takes its place, or none. What the copy lacks comes from the run
               cache: nothing that was finished is computed again
rwlock         a part of one is removed. Entries of processes that are gone are removed, also where another process has
               their number now: DVC goes by the number alone, and would wait for ever
.dvc/cache     files that were half copied into it are removed, and what is empty in the run cache: DVC makes a folder
               for a stage before it writes into it, and fails at one with nothing in it
"""

import json
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from dvc.config import Config
from dvc.lock import make_lock
from dvc.repo import Repo
from dvc.rwlock import RWLOCK_LOCK, SCHEMA
from voluptuous import Invalid

from pipeline.claims import EditedError
from pipeline.door import check_project
from pipeline.dvc_files import PARTIAL_PREFIX, RWLOCK, copy_of, keep_lock, locks, replaced, text_of
from pipeline.lock_text import is_whole
from pipeline.used import check_used
from stages.common.files import sweep_partial
from stages.common.paths import DATA

COPYING_SECONDS = 600.0  # a copy under way has been written to since
FILLING_SECONDS = 2.0  # DVC writes into a folder of the run cache as soon as it has made it
LEFT_BY_DVC = re.compile(r"\.[A-Za-z0-9_-]{22}\.tmp$")  # a name that DVC gives while it copies


def heal() -> list[str]:
    """What was put right, a line each. To be called with the run lock."""
    found = [line for lock in locks() for line in heal_lock(lock)]
    found += [*heal_used(), *heal_rwlock(), *heal_cache()]
    for path in [*locks(), RWLOCK]:
        path.with_name(f"{PARTIAL_PREFIX}{path.name}").unlink(missing_ok=True)
    for path in DATA.rglob(".*.tmp"):
        if LEFT_BY_DVC.search(path.name):
            path.unlink()
    sweep_partial()
    for lock in locks():
        keep_lock(lock)
    return found


def tell_healed(nothing: str = "") -> None:
    """Heal, and say on standard error what was put right; `nothing` is said if there was nothing."""
    check_project()
    told = heal() or ([nothing] if nothing else [])
    for line in told:
        print(f"rloo: {line}", file=sys.stderr)


def heal_lock(lock: Path) -> list[str]:
    """Restore a dvc.lock of which there is a part only."""
    if not lock.exists() or is_whole(text_of(lock)):
        return []
    text = text_of(copy_of(lock))
    if not is_whole(text):
        lock.unlink()
        return [f"{lock} was cut off, and is removed; what is finished comes back from the run cache"]
    with replaced(lock) as file:
        file.write(text)
    return [f"{lock} was cut off; its last whole copy takes its place"]


def heal_used() -> list[str]:
    """Take back what DVC claims of the last stage, if it was edited at its very end."""
    try:
        check_used()
    except EditedError as error:
        return [str(error)]
    return []


def heal_rwlock(path: Path = RWLOCK) -> list[str]:
    """Remove a part of an rwlock, and entries of processes that are gone."""
    if not path.exists():
        return []
    hardlink = Config(str(path.parents[1]))["core"].get("hardlink_lock", False)
    with make_lock(str(path.with_name(RWLOCK_LOCK)), tmp_dir=str(path.parent), hardlink_lock=hardlink):
        try:
            content = SCHEMA(json.loads(text_of(path)))
        except (ValueError, Invalid):
            path.unlink()
            return [f"{path} was cut off, and is removed"]
        kept, gone = _without_gone(content)
        if gone:
            with replaced(path) as file:
                json.dump(kept, file)
    return [f"{path} named {process}, which is gone" for process in sorted(gone)]


def _without_gone(content: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    gone: set[str] = set()

    def stays(info: dict[str, Any]) -> bool:
        if not works_here(int(info["pid"])):
            gone.add(f"process {info['pid']} ({info['cmd']})")
            return False
        return True

    write = {file: info for file, info in content["write"].items() if stays(info)}
    readers = {file: [info for info in infos if stays(info)] for file, infos in content["read"].items()}
    return {"write": write, "read": {file: infos for file, infos in readers.items() if infos}}, gone


def works_here(pid: int) -> bool:
    """Whether this is another process that could be using DVC in this folder. One that may not be looked at could."""
    if pid == os.getpid():  # whose number was another's before: this one has no entry yet
        return False
    try:
        folder = Path(psutil.Process(pid).cwd())
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return folder.is_relative_to(Path.cwd())


def is_left(path: Path, seconds: float, *, wait: bool = False) -> bool:
    """Whether nothing has been done to the path for so long: experiments and other projects may use the cache now.

    With `wait`, until that can be told.
    """
    try:
        age = time.time() - path.stat().st_mtime
        if wait and 0 <= age < seconds:
            time.sleep(seconds - age)
            age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    return age >= seconds or age < 0  # from a clock that was ahead


def heal_cache() -> list[str]:
    """Remove what was being copied into DVC's cache when DVC was killed. Half a copy does no harm until it is old."""
    with Repo() as repo:
        folder, runs = Path(repo.cache.local.path), Path(repo.stage_cache.cache_dir)
    there = [*folder.glob("*/*"), *runs.glob("*/*/*")]
    left = [path for path in there if LEFT_BY_DVC.search(path.name) and is_left(path, COPYING_SECONDS)]
    for path in left:
        path.unlink(missing_ok=True)
    empty = 0
    for path in [path for path in runs.glob("*/*") if path.is_dir() and not any(path.iterdir())]:
        if is_left(path, FILLING_SECONDS, wait=True):
            with suppress(OSError):  # it has something in it now
                path.rmdir()
                empty += 1
    found = [f"{len(left)} file(s) in {folder.parent} were half copied, and are removed"] if left else []
    return [*found, *([f"{empty} folder(s) in {runs} were empty, and are removed"] if empty else [])]
