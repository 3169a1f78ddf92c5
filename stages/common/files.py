"""Publishing by rename: a file or folder appears whole or not at all, and what it replaces stays until then.

Work in progress lies under `data/.partial`, outside every folder that DVC hashes; for a target on another file system
it lies beside the target, under a hidden name that DVC and git ignore.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from stages.common.disk import telling
from stages.common.durable import copy, make_folder, remove, sync, sync_tree
from stages.common.fingerprint import forget_written, hash_written, published
from stages.common.paths import PARTIAL
from stages.common.processes import lives, own_identity
from stages.common.record import running

REPLACED = "replaced"  # ends the name of a folder in which an old target waits until its successor has its place
OLD, PLACE = "old", "place"  # in that folder: the target, and where it belongs


@contextmanager
def publish(target: Path) -> Iterator[Path]:
    """Give a scratch path to write a file or a folder to; rename it to `target` if the block succeeds.

    A DiskError says what the disk did not allow, also where the block itself met it.
    """
    with telling(target):
        scratch = _scratch(target)
        try:
            yield scratch
            with ThreadPoolExecutor(1) as beside:
                hashing = beside.submit(hash_written, scratch)
                sync_tree(scratch)
                hashing.result()
            make_folder(target.parent)
            _replace(scratch, target)
            sync(target.parent)
            published(scratch, target)
        finally:
            remove(scratch)
            forget_written(scratch)
    record = running()
    if record is not None:
        record.written.append(target)


def discard(path: Path) -> None:
    """Remove a file or a folder: gone at once, by a rename, so that nobody finds a part of it."""
    with telling(path):
        scratch = _scratch(path)
        _rename(path, scratch)
        sync(path.parent)
        remove(scratch)


def _scratch(target: Path) -> Path:
    """An unused path on the target's file system."""
    make_folder(PARTIAL)
    _sweep_beside(target)
    there = next(one for one in target.absolute().parents if one.exists())
    if there.stat().st_dev == PARTIAL.stat().st_dev:
        scratch = PARTIAL / f"{own_identity()}.{target.parent.name}.{target.name}"
    else:
        make_folder(target.parent)
        scratch = _beside(target, own_identity())
    remove(scratch)
    return scratch


def _beside(target: Path, owner: int | str) -> Path:
    return target.with_name(f".{target.name}.{owner}.partial")


def _sweep_beside(target: Path) -> None:
    """Remove what processes that no longer live left half-made beside the target."""
    for path in target.parent.glob(str(_beside(Path(target.name), "*"))):
        if not lives(path.name.split(".")[-2]):
            remove(path)


def _replace(scratch: Path, target: Path) -> None:
    """Rename over a file; what cannot be renamed over is set aside first, and comes back if the rename fails."""
    is_folder = target.is_dir() and not target.is_symlink()
    if not (is_folder or (scratch.is_dir() and os.path.lexists(target))):
        _rename(scratch, target)
        return
    aside = _set_aside(target)
    try:
        _rename(scratch, target)
    except BaseException:
        _bring_back(aside)
        raise
    sync(target.parent)
    remove(aside)


def _set_aside(target: Path) -> Path:
    """Move the old target away, into a folder that knows its place: `sweep_partial` brings it back after a kill."""
    aside = PARTIAL / f"{own_identity()}.{target.parent.name}.{target.name}.{REPLACED}"
    remove(aside)
    make_folder(aside)
    (aside / PLACE).write_text(str(target.absolute()), encoding="utf-8")
    sync_tree(aside)
    _rename(target, aside / OLD)
    return aside


def _bring_back(aside: Path) -> None:
    """Move a target that was set aside to its place, unless its successor is there."""
    old, place = aside / OLD, aside / PLACE
    if os.path.lexists(old):
        target = Path(place.read_text(encoding="utf-8"))
        if not os.path.lexists(target):
            _rename(old, target)
    remove(aside)


def _rename(source: Path, target: Path) -> None:
    """Mounts of one device are file systems of their own, too: then a synced copy is renamed."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        near = _beside(target, own_identity())
        remove(near)
        try:
            copy(source, near)
            os.rename(near, target)
        finally:
            remove(near)
        remove(source)


def sweep_partial() -> None:
    """Remove what processes that no longer live left half-made; what was set aside and has no successor comes back."""
    for path in PARTIAL.glob("*"):
        if not lives(path.name.split(".")[0]):
            if path.name.endswith(f".{REPLACED}"):
                _bring_back(path)
            remove(path)


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
