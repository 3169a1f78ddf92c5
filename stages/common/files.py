"""Publishing by rename: a file or folder appears whole or not at all.

Work in progress lies under `data/.partial`, on the same file system and outside every folder that DVC hashes.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.common.paths import PARTIAL
from stages.common.processes import lives, own_identity

published: list[Path] = []  # by the stage that runs, in order


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def publish(target: Path) -> Iterator[Path]:
    """Give a scratch path to write a file or a folder to; rename it to `target` if the block succeeds."""
    scratch = PARTIAL / f"{own_identity()}.{target.parent.name}.{target.name}"
    scratch.parent.mkdir(parents=True, exist_ok=True)
    _clear(scratch)
    try:
        yield scratch
        for file in [p for p in scratch.rglob("*") if p.is_file()] if scratch.is_dir() else [scratch]:
            _sync(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        if scratch.is_dir() and target.exists():
            _clear(target)
        os.replace(scratch, target)
        _sync(target.parent)
        published.append(target)
    finally:
        _clear(scratch)


def sweep_partial() -> None:
    """Remove what processes that no longer live left half-made."""
    for path in PARTIAL.glob("*"):
        if not lives(path.name.split(".")[0]):
            _clear(path)


def link_folder(source: Path, target: Path) -> None:
    """The same files in another folder. Hard links, so that they take no room twice; copies where there are none.

    DVC may keep the source's files read-only, and as links into its cache: a link to the file itself is one more
    name for it, which DVC removes without touching the others.
    """
    for path in sorted(source.rglob("*")):
        if path.is_file():
            link = target / path.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link_file(path.resolve(), link)


def link_file(path: Path, link: Path) -> None:
    """One more name for the file, or a copy where links cannot be had."""
    try:
        os.link(path, link)
    except OSError:  # another file system, one without links, or one that forbids them
        shutil.copyfile(path, link)
