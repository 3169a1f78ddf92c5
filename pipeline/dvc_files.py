"""DVC's own files: dvc.lock and rwlock, which DVC writes in place, so that a kill can leave a part of one.

`rloo train` gives DVC a file system that writes these two beside and renames them: it never leaves a part. `dvc repro`
writes them as it does; a copy of the whole dvc.lock is kept for it, from which `heal.py` takes what was damaged.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pipeline.lock_text import is_whole
from stages.common.disk import telling
from stages.common.durable import sync
from stages.common.paths import DATA

LOCK = Path("dvc.lock")
COPIES = DATA / ".cache" / "locks"  # of each dvc.lock the last whole one
RWLOCK = Path(".dvc/tmp/rwlock")
WHOLE_OR_NOT = frozenset({"dvc.lock", "rwlock"})
PARTIAL_PREFIX = ".rloo-partial-"


@contextmanager
def replaced(path: Path, *, synced: bool = True) -> Iterator[IO[str]]:
    """A text file to write; it takes the place of `path` when the block has ended well.

    `synced`: so that a power cut, too, leaves the old or the new.
    """
    scratch = path.with_name(f"{PARTIAL_PREFIX}{path.name}")
    with telling(path):
        try:
            with scratch.open("w+", encoding="utf-8") as file:
                yield file
                file.flush()
                if synced:
                    os.fsync(file.fileno())
            os.replace(scratch, path)
            if synced:
                sync(path.parent)
        finally:
            scratch.unlink(missing_ok=True)


def locks() -> list[Path]:
    """The lock of the run, and those of studies."""
    return [LOCK, *sorted(Path("pipeline/studies").glob("*/dvc.lock"))]


def copy_of(lock: Path) -> Path:
    return COPIES / "-".join(lock.parts)


def keep_lock(lock: Path = LOCK) -> None:
    """Copy dvc.lock if it is whole; nothing if the copy is the same already."""
    text, copy = text_of(lock), copy_of(lock)
    if text == text_of(copy) or not is_whole(text):
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    with replaced(copy) as file:
        file.write(text)


def text_of(path: Path) -> str:
    """Empty if there is none, or if it is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
