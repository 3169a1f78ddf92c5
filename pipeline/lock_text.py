"""The text of a dvc.lock by stage, to the letter: entries are taken out and put in as DVC wrote them.

Parsing all of a dvc.lock takes longer than a small stage does, and longer the more stages it has. As text, an entry is
found by its indentation, and is parsed alone, once.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from stages.common.errors import StageError

HEADER = "schema: '2.0'\nstages:\n"
EMPTY = "schema: '2.0'\nstages: {}\n"
ENTRY = re.compile(r"^  ([^\s:]+):\n", re.MULTILINE)  # the name of a stage
OTHER_KEY = re.compile(r"^\S", re.MULTILINE)

Lock = dict[str, str]  # stage -> its lines


def entries(text: str) -> Lock | None:
    """The entries of a lock; None if it is not as DVC writes it, or has more in it than stages."""
    if text in ("", EMPTY):
        return {}
    found = list(ENTRY.finditer(text))
    if not text.startswith(HEADER) or not found or found[0].start() != len(HEADER) or not text.endswith("\n"):
        return None
    if OTHER_KEY.search(text, len(HEADER)):
        return None
    ends = [match.start() for match in found[1:]] + [len(text)]
    return {match[1]: text[match.start() : end] for match, end in zip(found, ends, strict=True)}


def split(text: str, source: Path) -> Lock:
    """The entries of a lock; a StageError if it is not as DVC writes it."""
    found = entries(text)
    if found is None:
        raise StageError(
            f"{source}: not a lock as DVC writes it, or only a part of one; restore it with git, or delete it: "
            "`rloo train` takes what is finished from DVC's run cache"
        )
    return found


def lock_text(lock: Mapping[str, str]) -> str:
    """A lock of these entries."""
    return HEADER + "".join(lock.values()) if lock else EMPTY


def only(text: str, dvc_name: str) -> str | None:
    """A lock with one stage's entry alone, which may be none; None if the lock is not as DVC writes it."""
    found = entries(text)
    return None if found is None else lock_text({k: v for k, v in found.items() if k == dvc_name})


def with_entry(text: str, dvc_name: str, written: str) -> str:
    """The lock with the stage's entry as it is in `written`: in its place, or at the end, as DVC puts it."""
    return lock_text({**split(text, Path("dvc.lock")), dvc_name: entry_text(written, dvc_name)})


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


def is_whole(text: str) -> bool:
    """Whether this is all of a dvc.lock: a part of one ends within a line, or is no lock at all."""
    if not text.endswith("\n"):
        return False
    found = entries(text)
    if found is not None:
        return all(map(_is_stage, found.values()))
    content = _loaded(text)
    if not isinstance(content, dict) or content.get("schema") != "2.0":
        return False
    return _are_stages(content.get("stages", {}))


@lru_cache(maxsize=4096)
def _is_stage(lines: str) -> bool:
    return _are_stages(_loaded(lines))


def _loaded(text: str) -> Any:
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return None


def _are_stages(stages: Any) -> bool:
    return isinstance(stages, dict) and all(isinstance(entry, dict) and _is_entry(entry) for entry in stages.values())


def _is_entry(entry: dict[str, Any]) -> bool:
    lists = all(isinstance(entry.get(key, []), list) for key in ("deps", "outs"))
    return "cmd" in entry and lists and isinstance(entry.get("params", {}), dict)
