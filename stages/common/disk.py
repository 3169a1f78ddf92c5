"""Errors of the disk, told so that they can be mended: which file, what is wrong, how much is free.

Python's own have a number; libraries written in Rust (polars, safetensors) put it into their text.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.common.errors import StageError

REMEDIES = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "the quota is used up: make room there, or have it raised",
    errno.EFBIG: "raise the largest size that a file may have (`ulimit -f`)",
    errno.EROFS: "mount it so that it can be written to",
    errno.EACCES: "allow it to this user",
    errno.EPERM: "allow it to this user",
    errno.EMFILE: "raise the number of files that may be open (`ulimit -n`)",
    errno.ENFILE: "close programs, or raise the number of files that may be open on this machine",
    errno.EBUSY: "it is in use, or a mount point: mount the folder above it instead",
    errno.EIO: "the device cannot be relied on: look at the system's log, and use another disk",
}
IN_TEXT = re.compile(r"\(os error (\d+)\)")


class DiskError(StageError):
    """Something that could not be written or read, for a reason that lies outside the run."""


def number_of(error: BaseException) -> int | None:
    """The system's number of the error; None if it has none."""
    if isinstance(error, OSError):
        return error.errno
    found = IN_TEXT.search(str(error))
    return int(found[1]) if found else None


def disk_error(error: BaseException, path: Path) -> DiskError | None:
    """What to tell of an error on the way to `path`; None if it is not one of the disk."""
    number = None if isinstance(error, StageError) else number_of(error)
    if number not in REMEDIES:
        return None
    place = path if not isinstance(error, OSError) or error.filename is None else Path(os.fsdecode(error.filename))
    return DiskError(
        f"{place}: {os.strerror(number)} ({free(place)}); {REMEDIES[number]}, and run the same command again. Nothing "
        "that was finished is lost"
    )


def free(path: Path) -> str:
    """`1.3 GB free there`, of the disk that the path lies on, or would."""
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    try:
        return f"{shutil.disk_usage(there).free / 1e9:.3g} GB free there"
    except OSError:
        return "how much is free cannot be told"


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Errors of the disk in the block are DiskErrors, about `path` if they name no other."""
    try:
        yield
    except Exception as error:
        told = disk_error(error, path)
        if told is None:
            raise
        raise told from error
