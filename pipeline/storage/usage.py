"""What takes how much: the workspace by kind, what only DVC's cache has, what nothing needs any more, and each window.

Sizes are lengths of files, in bytes. A file with several names (hard links, or links into the cache) counts once, under
the first kind that has it.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.storage.objects import Cache
from pipeline.storage.prune import is_checkpoint
from pipeline.storage.references import held_elsewhere
from pipeline.storage.windows import Window, all_locks, outs_of
from pipeline.windows.lock import of_a_window
from stages.common import paths

EVALUATIONS = frozenset({"eval.json", "generations.parquet", "judge.json", "judged.parquet"})
FOLDERS = {  # of data/, by the name that the table gives them
    "base": "base, reference and reference of the KL",
    "reference": "base, reference and reference of the KL",
    "kl_reference": "base, reference and reference of the KL",
    "policies": "policies",
    "optimizer": "optimizer states",
    "critics": "critics",
    "reward_models": "reward models",
    "preferences": "tables",
    "manifests": "manifests",
    "sources": "tables",
    "rescored": "rescored",
    "logs": "logs",
    ".partial": "half-written",
}
OTHER = "other files of data/"
SHARED, ONLY_CACHE, UNREFERENCED = "shared with the workspace", "in the cache alone", "needed by nothing"
RUN_CACHE, EXPERIMENTS = "run cache", "folders of experiments that run"


@dataclass
class Usage:
    """Bytes, by what takes them."""

    workspace: dict[str, int] = field(default_factory=dict)
    cache: dict[str, int] = field(default_factory=dict)  # SHARED is counted in `workspace`, too
    prefect: dict[str, int] = field(default_factory=dict)  # database -> bytes
    windows: list[dict[str, object]] = field(default_factory=list)


def kind(file: Path) -> str:
    """Of a file in data/, what the table calls it."""
    parts = file.relative_to(paths.DATA).parts
    if parts[0] == ".cache":
        return f"{parts[1]} cache" if len(parts) > 2 else OTHER
    if parts[0] in ("iterations", "offline"):
        if "policy" in parts[2:3]:
            return "policies"
        return "evaluations" if file.name in EVALUATIONS else "tables"
    if len(parts) == 1:
        return "tables" if file.suffix in (".parquet", ".csv") else OTHER
    return FOLDERS.get(parts[0], OTHER)


def _count(files: Iterable[tuple[str, Path]], seen: set[tuple[int, int]]) -> dict[str, int]:
    """Bytes by kind of files that are not in `seen` yet. What vanishes meanwhile counts nothing."""
    sizes: dict[str, int] = {}
    for name, file in files:
        try:
            stat = file.stat()
        except FileNotFoundError:
            continue
        if (stat.st_dev, stat.st_ino) not in seen:
            seen.add((stat.st_dev, stat.st_ino))
            sizes[name] = sizes.get(name, 0) + stat.st_size
    return sizes


def _files(folder: Path) -> Iterable[Path]:
    """Files below a folder; links to folders are not followed."""
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            yield Path(where) / name


def _cache_usage(cache: Cache, seen: set[tuple[int, int]]) -> dict[str, int]:
    """Of the objects: what the workspace has too, what a window, branch or experiment needs, what nothing does."""
    here = {out.md5 for _, stages in all_locks() for stage, entry in stages.items() for out in outs_of(stage, entry)}
    needed = cache.objects(here | set(held_elsewhere()))
    sizes = {SHARED: 0, ONLY_CACHE: 0, UNREFERENCED: 0}
    for md5 in cache.all_objects():
        try:
            stat = cache.file(md5).stat()
        except FileNotFoundError:  # a run replaces files meanwhile
            continue
        name = SHARED if (stat.st_dev, stat.st_ino) in seen else ONLY_CACHE if md5 in needed else UNREFERENCED
        sizes[name] += stat.st_size
    return sizes


def prefect_database() -> Path | None:
    """Where Prefect keeps its runs, if that is a file on this machine and not a server elsewhere."""
    if os.environ.get("PREFECT_API_DATABASE_CONNECTION_URL"):
        return None
    database = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser() / "prefect.db"
    return database if database.exists() else None


def _window_row(window: Window, cache: Cache) -> dict[str, object]:
    """Of what belongs to the window; what comes before the first iteration is in every window's lock."""
    outs = {out.md5: out for out in window.outs if of_a_window(out.stage)}
    checkpoints = [out for out in window.outs if is_checkpoint(out) and out.size]
    policies = [out for out in checkpoints if out.path.startswith(str(paths.DATA / "policies"))]
    return {
        "window": window.name,
        "state": "open" if window.is_open else "finished" if window.is_finished else "not finished",
        "iterations": f"{window.plan.names[0]}-{window.plan.last}",
        "trained": len(window.trained),
        "policies_here": sum(cache.is_complete(out.md5) for out in policies),
        "checkpoints": sum(out.size for out in checkpoints if cache.is_complete(out.md5)),
        "all": sum(out.size for md5, out in outs.items() if cache.is_complete(md5)),
    }


def usage(cache: Cache, windows: Iterable[Window]) -> Usage:
    """Of the project in this folder."""
    seen: set[tuple[int, int]] = set()
    found = Usage(_count(((kind(file), file) for file in _files(paths.DATA)), seen))
    found.cache = _cache_usage(cache, seen)
    found.cache |= {RUN_CACHE: 0, EXPERIMENTS: 0}
    found.cache |= _count(((RUN_CACHE, file) for file in _files(cache.runs)), seen)
    found.cache |= _count(((EXPERIMENTS, file) for file in _files(Path(".dvc/tmp/exps"))), seen)
    database = prefect_database()
    if database is not None:
        files = sorted(database.parent.glob("prefect.db*"))
        found.prefect = {str(database): sum(file.stat().st_size for file in files)}
    found.windows = [_window_row(window, cache) for window in windows]
    return found
