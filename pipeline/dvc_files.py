"""DVC's own files: dvc.lock and rwlock, which DVC writes in place, so that a kill can leave a part of one.

`rloo train` gives DVC a file system that writes these two beside and renames them: it never leaves a part. `dvc repro`
writes them as it does; a copy of the whole dvc.lock is kept for it, from which `heal.py` takes what was damaged.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from stages.common.disk import telling
from stages.common.durable import sync
from stages.common.paths import DATA

LOCK = Path("dvc.lock")
COPIES = DATA / ".cache" / "locks"  # of each dvc.lock the last whole one
RWLOCK = Path(".dvc/tmp/rwlock")
WHOLE_OR_NOT = frozenset({"dvc.lock", "rwlock"})
PARTIAL_PREFIX = ".rloo-partial-"


@contextmanager
def replaced(path: Path) -> Iterator[IO[str]]:
    """A text file to write; it takes the place of `path` when the block has ended well."""
    scratch = path.with_name(f"{PARTIAL_PREFIX}{path.name}")
    with telling(path):
        try:
            with scratch.open("w+", encoding="utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(scratch, path)
            sync(path.parent)
        finally:
            scratch.unlink(missing_ok=True)


def is_whole(text: str) -> bool:
    """Whether this is all of a dvc.lock: a part of one ends within a line, or is no lock at all."""
    if not text.endswith("\n"):
        return False
    try:
        content: Any = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return False
    if not isinstance(content, dict) or content.get("schema") != "2.0":
        return False
    stages = content.get("stages", {})
    return isinstance(stages, dict) and all(isinstance(entry, dict) and _is_entry(entry) for entry in stages.values())


def _is_entry(entry: dict[str, Any]) -> bool:
    lists = all(isinstance(entry.get(key, []), list) for key in ("deps", "outs"))
    return "cmd" in entry and lists and isinstance(entry.get("params", {}), dict)


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


def entry_text(text: str, dvc_name: str) -> str:
    """The part of a dvc.lock that is about one stage, to the letter; empty if there is none."""
    head = f"\n  {dvc_name}:\n"
    start = text.find(head) + 1
    if start == 0:
        return ""
    end = start + len(head) - 1
    while (line_end := text.find("\n", end)) >= 0 and text.startswith("   ", end):
        end = line_end + 1
    return text[start:end]


def without_entry(text: str, dvc_name: str) -> str:
    """The dvc.lock without one stage; empty if no other is left in it."""
    left = text.replace(entry_text(text, dvc_name), "", 1)
    return left if left.partition("stages:\n")[2].startswith("  ") else ""
