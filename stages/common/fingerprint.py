"""Content hashes of model folders: how a process knows that a model it holds is the one on disk."""

import os
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

Signature = tuple[int, int, int, int, int]

SETTLED_NS = 20_000_000  # a file system's clock ticks every 10 ms or faster: within a tick a change leaves no trace
LARGE = 1 << 20  # bytes; hashing a smaller file once more costs less than waiting

_known: dict[Path, tuple[Signature, str]] = {}
_written: dict[Path, tuple[tuple[int, ...], str]] = {}  # not published yet


def _signature(path: Path) -> Signature:
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _identity(path: Path) -> tuple[int, ...]:
    """What a rename does not change."""
    return _signature(path)[:-1]


def file_hash(path: Path) -> str:
    """Hash of a file's bytes; read again only if its inode, size or times have changed since the last call.

    What was changed this very moment could change once more within a tick of the clock, unseen: it is not remembered.
    """
    held = _known.get(path)
    if held is not None and held[0] == _signature(path):
        return held[1]
    if _settles_in(path) and path.stat().st_size >= LARGE:
        time.sleep(_settles_in(path))
    signature, settled = _signature(path), not _settles_in(path)
    digest = _hash(path)
    if settled:
        _known[path] = (signature, digest)
    return digest


def _hash(path: Path) -> str:
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(1 << 24):
            digest.update(chunk)
    return digest.hexdigest()


def written(path: Path, digest: str) -> None:
    """The hash of a file that this process has written and not yet published, as it was taken on the way."""
    _written[path] = _identity(path), digest


def hash_written(scratch: Path) -> None:
    """Hash the large files of something that is about to be published, but for those whose hash was taken already."""
    for path in [scratch, *scratch.rglob("*")] if scratch.is_dir() else [scratch]:
        if path.is_file() and path not in _written and path.stat().st_size >= LARGE:
            before, digest = _identity(path), _hash(path)
            _written[path] = before, digest


def published(scratch: Path, target: Path) -> None:
    """What was written at `scratch` is now at `target`: its hashes are known there."""
    for path in [path for path in list(_written) if path == scratch or scratch in path.parents]:
        place, (identity, digest) = target / path.relative_to(scratch), _written.pop(path)
        if place.stat().st_size >= LARGE:
            time.sleep(_settles_in(place))
            signature = _signature(place)
            if _identity(place) == identity and not _settles_in(place):  # nobody has touched or replaced it
                _known[place] = (signature, digest)


def forget_written(scratch: Path) -> None:
    """Of something that was not published after all."""
    for path in [path for path in list(_written) if path == scratch or scratch in path.parents]:
        del _written[path]


def _settles_in(path: Path) -> float:
    """Seconds until a change of the file would show in its times; 0: it would now."""
    age = time.time_ns() - os.stat(path).st_ctime_ns
    return (SETTLED_NS - age) / 1e9 if 0 <= age < SETTLED_NS else float(age < 0) * SETTLED_NS / 1e9


def folder_hash(folder: Path, counts: Callable[[Path], bool] = lambda path: True) -> str:
    """Hash over the names and contents of a folder's files, those that count."""
    digest = blake2b(digest_size=16)
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and counts(p)):
        digest.update(f"{path.relative_to(folder)}\0{file_hash(path)}\0".encode())
    return digest.hexdigest()


def code_hash(folder: Path) -> str:
    """Hash of a room: its code and what lies beside it, without what running it and editors leave there."""
    return folder_hash(folder, lambda path: "__pycache__" not in path.parts and not path.name.startswith("."))
