"""SHA-256 of users' files, which may be large: a file is read again only if its place, size or times have changed.

What is known is kept in data/.cache/hashes.json. A file that was changed less than two seconds ago is not kept: within
the resolution of its times it could change once more, unseen. A memo that cannot be read is started afresh.
"""

import hashlib
import json
import os
import time
from pathlib import Path

from stages.common.files import publish
from stages.common.paths import DATA
from stages.common.write_json import write_json

MEMO = DATA / ".cache" / "hashes.json"
SETTLED_NS = 2_000_000_000

Signature = list[int]  # inode, size, times of contents and of the inode


def signature(path: Path) -> Signature:
    stat = os.stat(path)
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


class Hashes:
    """Hashes of files and folders, with the memo of earlier runs."""

    def __init__(self) -> None:
        self._before = _read_memo()
        self._used: dict[str, tuple[Signature, str]] = {}

    def file(self, path: Path) -> str:
        """SHA-256 of a file's bytes."""
        key, now = str(path.resolve()), signature(path)
        held = self._used.get(key) or self._before.get(key)
        if held is not None and held[0] == now:
            self._used[key] = held
            return held[1]
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if signature(path) == now and time.time_ns() - max(now[2:]) > SETTLED_NS:
            self._used[key] = (now, found)
        return found

    def folder(self, folder: Path) -> str:
        """Over the names and contents of the files in a folder, hidden ones and compiled Python aside."""
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in inside.parts):
                digest.update(f"{inside}\0{self.file(path)}\0".encode())
        return digest.hexdigest()

    def keep(self) -> None:
        """Write the memo of what was asked for."""
        with publish(MEMO) as scratch:
            write_json({key: [*held[0], held[1]] for key, held in self._used.items()}, scratch)


def _read_memo() -> dict[str, tuple[Signature, str]]:
    try:
        raw = json.loads(MEMO.read_text(encoding="utf-8"))
        return {key: ([int(part) for part in row[:4]], str(row[4])) for key, row in raw.items()}
    except (OSError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        return {}
