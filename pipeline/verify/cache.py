"""The objects of DVC's cache against their names, which are the MD5 of their bytes.

With hard links an object and the file in the workspace are one: what damages the one has damaged the other, and DVC
takes an object that is write-protected for whole.
"""

from collections.abc import Iterator
from pathlib import Path

from pipeline.verify.findings import Finding
from pipeline.verify.locks import FOLDER, Locks, Out, object_path
from pipeline.verify.workspace import Say, md5_of
from stages.common.checked import here
from stages.common.paths import MANIFESTS

EARLIER = "an earlier run"


def objects(cache: Path, locks: Locks, names: list[str]) -> list[str]:
    """All that the cache has; or with names, those of the stages that have them, by the locks."""
    if names:
        folders = {MANIFESTS / name for name in names}
        stages = {out.stage for path, out in locks.of_path.items() if folders & set(path.parents)}
        return sorted(oid for oid, outs in locks.of_object.items() if any(out.stage in stages for out in outs))
    return sorted(path.parent.name + path.name for path in cache.glob("[0-9a-f][0-9a-f]/*"))


def examine(cache: Path, locks: Locks, names: list[str], say: Say, intact: set[Path]) -> Iterator[Finding]:
    """Damaged objects, and files of the workspace that are links to them. Those in `intact` are not read again."""
    known = {(stat.st_dev, stat.st_ino) for stat in (path.stat() for path in intact if _is_locked(path, locks))}
    for oid in objects(cache, locks, names):
        path = object_path(cache, oid)
        if not path.is_file() or (path.stat().st_dev, path.stat().st_ino) in known:
            continue
        say(str(path))
        if md5_of(path) != oid.removesuffix(FOLDER):
            outs = locks.of_object.get(oid, [])
            yield Finding("damaged", here(path), ", ".join(dict.fromkeys(o.stage for o in outs)) or EARLIER, _of(outs))
            yield from _linked(path, outs)


def _is_locked(path: Path, locks: Locks) -> bool:
    return path in locks.of_path and MANIFESTS not in path.parents  # what lists others is listed nowhere itself


def _of(outs: list[Out]) -> str:
    return f"of {', '.join(dict.fromkeys(str(out.path) for out in outs))}" if outs else "of no lock that is here"


def _linked(path: Path, outs: list[Out]) -> Iterator[Finding]:
    for out in outs:
        if out.path.is_file() and out.path.samefile(path):
            yield Finding("damaged", out.path, out.stage, "one with its object in DVC's cache")
