"""What DVC's cache holds of a window."""

import json
from collections.abc import Iterable
from pathlib import Path

from pipeline.lock_text import Lock
from pipeline.plan import Plan
from pipeline.windows.files import content_md5, end_file
from pipeline.windows.lock import Out
from stages.common.checked import here
from stages.common.errors import StageError
from stages.common.manifest import REMEDY


def cache_folder() -> Path:
    """Where DVC keeps files by their hash, as its configuration says."""
    from dvc.repo import Repo

    with Repo() as repo:
        return Path(repo.cache.local.path)


def cached(cache: Path, md5: str) -> Path:
    return cache / md5[:2] / md5[2:]


def listed(cache: Path, md5: str) -> dict[str, str]:
    """relative path -> hash of the files of a folder that is in the cache."""
    path = cached(cache, md5)
    try:
        return {one["relpath"]: one["md5"] for one in json.loads(path.read_text(encoding="utf-8"))}
    except (ValueError, TypeError, KeyError) as error:
        raise StageError(f"{here(path)}: damaged, and no list of a folder any more ({error!r}); {REMEDY}") from None


def is_cached(cache: Path, md5: str) -> bool:
    """Whether the file, or the folder with all its files, is there."""
    if not cached(cache, md5).exists():
        return False
    return not md5.endswith(".dir") or all(cached(cache, one).exists() for one in listed(cache, md5).values())


def missing(cache: Path, outs: dict[str, Out]) -> list[str]:
    """The paths whose content the cache does not have."""
    return [path for path, out in outs.items() if not is_cached(cache, out["md5"])]


def read_end(window: str) -> dict[str, Out]:
    """What the next window starts from."""
    path = end_file(window)
    if not path.exists():
        raise StageError(
            f"{path} does not exist: {window} is not finished; `rloo windows open {window}` and `dvc repro`, or "
            "`rloo train`, which goes through all windows"
        )
    try:
        found: dict[str, Out] = json.loads(path.read_text(encoding="utf-8"))
        return {name: {**out, "md5": str(out["md5"])} for name, out in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StageError(f"{path}: not the end of a window ({error!r}); restore it with git, or `rloo train`") from None


def can_start(plan: Plan, lock: Lock, cache: Path) -> bool:
    """Whether the window's start is in the cache, or has been restored already; `lock` is the window's own."""
    for name, before in plan.entry.items():
        end = read_end(before["window"])
        gone, stage = missing(cache, end), f"window_entry@{name}"
        restored = stage in lock and content_md5(end_file(before["window"])) in lock[stage]
        if gone and not (restored and same_on_disk(gone, end)):
            return False
    return True


def same_on_disk(names: Iterable[str], outs: dict[str, Out]) -> bool:
    return all(Path(name).exists() and content_md5(Path(name)) == outs[name]["md5"] for name in names)
