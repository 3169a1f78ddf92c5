"""Results of finished calls, by content: a run that is killed and started again pays for no call twice.

An entry is one call: its key is a hash of the function, its code, its arguments and all inputs of the call in order.
A call that was made and not finished has a mark there instead (`one_call.py`).
Only what would be the same again is kept: `timeout` and `error` are not. What was not used for 30 days is removed.
"""

import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from pathlib import Path
from typing import Any

from stages.common.errors import StageError
from stages.common.paths import REWARD_CACHE

FORMAT = 1  # goes up when a key or an entry gets another meaning
LASTING = frozenset({"ok", "missing", "invalid"})
KEPT_SECONDS = 30 * 86400
SWEPT = REWARD_CACHE / "swept"  # its time says when old entries were last looked for
SWEEP_SECONDS = 86400

Row = tuple[Any, str, str | None]  # value, status, message


class NotCacheableError(Exception):
    """An input of a type that has no canonical text."""


def key_of(**content: Any) -> str:
    """The hash of what decides a result."""
    return hashlib.sha256(canonical(content | {"format": FORMAT}).encode()).hexdigest()


def canonical(content: Any) -> str:
    """One text per value: floats by their shortest exact form, dicts by key, every other type with its name."""
    return json.dumps(_by_pairs(content), default=_tagged, ensure_ascii=True, separators=(",", ":"))


def _by_pairs(value: Any) -> Any:
    """Dicts as sorted pairs, so that the keys 1 and "1" differ; lists of plain numbers and texts as they are."""
    if isinstance(value, dict):
        pairs = [[_by_pairs(key), _by_pairs(item)] for key, item in value.items()]
        return {"dict": sorted(pairs, key=lambda pair: json.dumps(pair[0], default=_tagged))}
    if isinstance(value, (list, tuple)):
        nested = any(isinstance(item, (list, tuple, dict)) for item in value)
        return [_by_pairs(item) for item in value] if nested else list(value)
    return value


def _tagged(value: Any) -> dict[str, str]:
    if isinstance(value, (datetime, date, time_of_day)):
        zone = getattr(value, "tzinfo", None)
        return {type(value).__name__: f"{value.isoformat()} {zone}"}
    if isinstance(value, timedelta):
        return {"timedelta": f"{value.days} {value.seconds} {value.microseconds}"}
    if isinstance(value, Decimal):
        return {"Decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    raise NotCacheableError(type(value).__name__)


def read(key: str, count: int) -> list[Row] | None:
    """The rows of a call; None if there is no entry, or one that is damaged."""
    path = _path(key)
    try:
        rows = [tuple(row) for row in json.loads(path.read_bytes())["rows"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if len(rows) != count or not all(map(_is_row, rows)):
        return None
    with suppress(OSError):
        os.utime(path)  # used: it stays
    return rows  # type: ignore[return-value]


def _is_row(row: tuple[Any, ...]) -> bool:
    if len(row) != 3 or row[1] not in LASTING:
        return False
    value, status, message = row
    number = isinstance(value, dict) or (isinstance(value, (int, float)) and math.isfinite(value))
    return number and message is None if status == "ok" else value is None and isinstance(message, str)


def write(key: str, rows: Sequence[Row]) -> None:
    """Keep a call, if all of its rows would be the same again."""
    if all(row[1] in LASTING for row in rows):
        publish(_path(key), {"rows": rows})


def mark_tried(key: str) -> None:
    """Note that a call was made and not finished: what its rows are known by singly counts when it comes again."""
    publish(_path(key), {"tried": True})


def was_tried(key: str) -> bool:
    path = _path(key)
    try:
        tried = json.loads(path.read_bytes())["tried"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    with suppress(OSError):
        os.utime(path)
    return tried


def publish(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all; a StageError if it cannot be written, as what it holds may have been paid for. Not synced:
    what a loss of power leaves half-written is ignored when it is read.
    """
    scratch = path.parent / f".{path.name}.{os.getpid()}.{threading.get_ident()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
        os.replace(scratch, path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink()
        raise StageError(
            f"{path}: the result of a finished call cannot be kept ({error.strerror}); make room or allow writing "
            "there, and start again: finished calls before it are kept. `cache: false` of a reward keeps nothing"
        ) from None
    with suppress(OSError):
        sweep()


def _path(key: str) -> Path:
    return REWARD_CACHE / key[:2] / f"{key}.json"


def sweep() -> None:
    """Remove what was not used for long; looks for it once a day."""
    now = time.time()
    with suppress(OSError):
        if now - SWEPT.stat().st_mtime < SWEEP_SECONDS:
            return
    SWEPT.touch()
    for path in REWARD_CACHE.glob("*/*"):
        with suppress(OSError):
            if now - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()
