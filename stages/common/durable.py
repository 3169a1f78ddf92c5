"""What survives a loss of power: contents are on the disk before a name leads to them.

A rename may reach the disk before the bytes of the file that it names, so each file and each folder is synced first.
"""

import os
import shutil
from pathlib import Path
from typing import IO


def sync(path: Path) -> None:
    """Bring a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """A file; or a folder with all that is in it, from the inside out."""
    if path.is_dir():
        for child in sorted(path.iterdir()):
            sync_tree(child)
    sync(path)


def drop_pages(file: IO[bytes], start: int = 0, length: int = 0) -> None:
    """Tell the system that these bytes of a large file (0: all) will hardly be read again: its pages in memory do for
    the one that is written next, where fresh ones may be slow to be had.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_DONTNEED)


def make_folder(folder: Path) -> None:
    """Make the folder and those above it that are missing, each with its name on the disk."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def copy(source: Path, target: Path) -> None:
    """A synced copy of a file or folder, for a target on another file system."""
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
    sync_tree(target)


def remove(path: Path) -> None:
    """A file, a folder with all that is in it, a link (and not what it leads to), or nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
