"""Pruning: policies, optimizer states and critics of finished windows go, but for those that `storage` says to keep.

What goes are folders of the workspace and objects of DVC's cache that nothing else needs. Tables, evaluations and
manifests stay, so that a pruned window can be looked at, and re-run from its start to the same bytes. What is to go is
written down first: whatever ends this process in the middle, the next pruning finishes it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dvc.lock import LockError
from dvc.repo import Repo

from pipeline.storage.keep import history_of, kept
from pipeline.storage.objects import Cache, cache_of
from pipeline.storage.references import held_elsewhere
from pipeline.storage.windows import Out, Window, all_locks, outs_of, read_windows
from stages.common import paths
from stages.common.errors import StageError
from stages.common.files import discard, publish, sweep_partial
from stages.common.params.storage import Storage
from stages.common.params_file import load_params
from stages.common.write_json import write_json

CHECKPOINTS = ("policies", "optimizer", "critics")  # of data/
UNDER_WAY = paths.DATA / ".pruning.json"
SHARED = "the cache is outside of this project, and others may use it"


@dataclass
class Pruning:
    """What goes, and why the rest stays."""

    kept: dict[str, str]  # iteration -> reason
    goes: list[str] = field(default_factory=list)  # iterations
    folders: list[Path] = field(default_factory=list)  # of the workspace
    objects: list[str] = field(default_factory=list)  # of the cache: listings first, so that none is ever half there
    held: dict[str, str] = field(default_factory=dict)  # path whose objects stay -> who needs them
    freed: int = 0  # bytes


def is_checkpoint(out: Out) -> bool:
    """Whether pruning may take it: the policy, optimizer state or critic of a training iteration."""
    parts = Path(out.path).parts
    return out.stage.startswith("update@") and parts[:1] == (str(paths.DATA),) and parts[1] in CHECKPOINTS


def checkpoint_folder(path: str | Path) -> Path:
    return Path(*Path(path).parts[:3])  # data/optimizer/i0003 of data/optimizer/i0003/optimizer.safetensors


def _goners(windows: Iterable[Window], keep: dict[str, str]) -> list[Out]:
    return [
        out
        for window in windows
        if window.is_finished
        for out in window.outs
        if is_checkpoint(out) and out.iteration not in keep
    ]


def _named_here(goners: list[Out]) -> set[str]:
    """Hashes that the workspace's locks name for anything but what goes."""
    going = {(out.stage, out.path, out.md5) for out in goners}
    named = (out for _, stages in all_locks() for stage, entry in stages.items() for out in outs_of(stage, entry))
    return {out.md5 for out in named if (out.stage, out.path, out.md5) not in going}


def plan_pruning(options: Storage, cache: Cache) -> Pruning:
    """What a pruning would take now; changes nothing."""
    windows = read_windows()
    history = history_of(windows, cache) if options.best is not None else None
    keep = kept(options, windows, history)
    goners = _goners(windows, keep)
    folders = sorted({checkpoint_folder(out.path) for out in goners})
    found = Pruning(keep, folders=[folder for folder in folders if folder.exists()])
    if cache.is_shared:
        found.held = {out.path: SHARED for out in goners if out.size and cache.has(out.md5)}
    else:
        elsewhere = held_elsewhere()
        needed = _named_here(goners) | set(elsewhere)
        found.held = {out.path: elsewhere[out.md5] for out in goners if out.md5 in elsewhere and cache.has(out.md5)}
        going = cache.objects(out.md5 for out in goners) | set(_unfinished())
        there = [md5 for md5 in going - cache.objects(needed) if cache.has(md5)]
        found.objects = sorted(there, key=lambda md5: (not md5.endswith(".dir"), md5))
    leaving = set(found.objects)
    going_now = (out for out in goners if out.md5 in leaving or checkpoint_folder(out.path) in found.folders)
    found.goes = sorted({str(out.iteration) for out in going_now}, key=paths.iteration_number)
    found.freed = _freed([*(cache.file(md5) for md5 in found.objects), *_files(found.folders)])
    return found


def _files(folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]


def _freed(files: Iterable[Path]) -> int:
    """Bytes on disk that end with these names: a file of which another name stays keeps its bytes."""
    names: dict[tuple[int, int], list[int]] = {}
    for file in files:
        stat = file.lstat()
        names.setdefault((stat.st_dev, stat.st_ino), [stat.st_nlink, stat.st_size, 0])[2] += 1
    return sum(size for links, size, going in names.values() if links == going)


def _unfinished() -> list[str]:
    """Objects that a pruning was about to take when it was ended."""
    try:
        return [str(md5) for md5 in json.loads(UNDER_WAY.read_text(encoding="utf-8"))["objects"]]
    except FileNotFoundError:
        return []


def prune(options: Storage | None = None, *, dry_run: bool = False) -> Pruning:
    """Prune by `options` (of params.yaml, if not given) and say what went; nothing goes where `keep_last` is null.

    To be called between stages, and for a window that closes once the plan of the next one is written.
    """
    options = options or load_params().storage
    with Repo() as repo:
        cache = cache_of(repo)
        found = plan_pruning(options, cache)  # without DVC's lock: it reads every lock of the run
        if dry_run:
            return found
        try:
            with repo.lock:
                found = plan_pruning(options, cache)  # what has been read is known by now
                _take(found, cache)
        except LockError:
            raise StageError("DVC is at work in this folder; prune when it has finished") from None
    return found


def _take(found: Pruning, cache: Cache) -> None:
    if not found.folders and not found.objects:
        UNDER_WAY.unlink(missing_ok=True)
        return
    sweep_partial()
    with publish(UNDER_WAY) as scratch:
        write_json({"objects": found.objects}, scratch)
    for folder in found.folders:
        discard(folder)
    for md5 in found.objects:
        cache.file(md5).unlink(missing_ok=True)
    UNDER_WAY.unlink(missing_ok=True)
