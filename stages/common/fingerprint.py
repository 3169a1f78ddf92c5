"""Content hashes of model folders: how a process knows that a model it holds is the one on disk."""

import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

Signature = tuple[int, int, int, int]

_known: dict[Path, tuple[Signature, str]] = {}


def _signature(path: Path) -> Signature:
    stat = os.stat(path)
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def file_hash(path: Path) -> str:
    """Hash of a file's bytes; read again only if its inode, size or times have changed since the last call."""
    signature = _signature(path)
    held = _known.get(path)
    if held is None or held[0] != signature:
        digest = blake2b(digest_size=16)
        with path.open("rb") as file:
            while chunk := file.read(1 << 24):
                digest.update(chunk)
        held = _known[path] = (signature, digest.hexdigest())
    return held[1]


def folder_hash(folder: Path, counts: Callable[[Path], bool] = lambda path: True) -> str:
    """Hash over the names and contents of a folder's files, those that count."""
    digest = blake2b(digest_size=16)
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and counts(p)):
        digest.update(f"{path.relative_to(folder)}\0{file_hash(path)}\0".encode())
    return digest.hexdigest()


def code_hash(folder: Path) -> str:
    """Hash of a room: its code and what lies beside it, without what running it leaves there."""
    return folder_hash(folder, lambda path: "__pycache__" not in path.parts)
