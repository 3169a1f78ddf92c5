"""Memory of the process: freed blocks serve the next pass, and go back to the system when a stage's work is done.

The C library (glibc) gives memory back as soon as there is some at the end of its heap, and what comes next is new: the
system fills it with zeros, page by page, which takes longer than many an operation that a pass does in it.
"""

import ctypes
import gc
import os
import sys
from functools import cache
from typing import Any

import torch

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # options of mallopt(3)
NEVER = -1
SET_BY_USERS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")
LARGEST = 32 << 20  # bytes of a block of the heap, as the library allows; larger ones would leave large holes in it


def keep_freed() -> None:
    """Have freed blocks kept for what is allocated next, from now on; where the C library can, and nobody has set its
    options in the environment.

    Blocks rarely fit where others were, so that a process would grow: `trim` after each round of work.
    """
    mallopt = _of_libc("mallopt")
    if mallopt is not None and not any(name in os.environ for name in SET_BY_USERS):
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, NEVER)


def collect() -> None:
    """Free what nothing uses any more: adapters, their models and optimizers are in cycles until a collection."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def trim() -> None:
    """Give what is free back to the system."""
    malloc_trim = _of_libc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def release() -> None:
    """Free what nothing uses any more, and give it back."""
    collect()
    trim()


@cache
def _of_libc(name: str) -> Any:
    """A function of glibc; None with another C library or system."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), name, None)
