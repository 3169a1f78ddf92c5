"""What becomes of one value that a user's function returned. Nothing ever turns into 0.

    ok        a finite number, of any type that `float()` takes: bool, numpy and torch scalars too
    missing   None: the function does not apply to the row
    invalid   NaN, infinity, and what is no number: a text is none; and an `Unscorable`, which says why
    error     an `Unscorable` whose reason may be gone next time

Needs the standard library alone: values are classed in the process that made them.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from stages.score.outcome import Unscorable

Verdict = tuple[float | None, str, str | None]  # value, status, message of one row
Parts = tuple[dict[str, float] | None, str, str | None]

MISSING = (None, "missing", "the function returned None")
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
SHOWN = 80  # characters of a wrong value


def classify(value: Any) -> Verdict:
    """Reward, status and message of one returned value."""
    if value is None:
        return MISSING
    if isinstance(value, Unscorable):
        return None, "error" if value.passing else "invalid", steady(str(value.reason))
    try:
        number = None if isinstance(value, (str, bytes, bytearray)) else float(value)
    except Exception:  # whatever a type's own conversion raises: it is no number
        number = None
    if number is None:
        return None, "invalid", f"not a number: {shown(value) if not isinstance(value, int) else 'too large'}"
    if not math.isfinite(number):
        return None, "invalid", f"not finite: {number}"
    return number, "ok", None


def classify_parts(value: Any) -> Parts:
    """The same of what a reward is made of: a dict of numbers by name."""
    if value is None:
        return MISSING
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return None, "invalid", f"not a dict of numbers by name: {shown(value)}"
    parts: dict[str, float] = {}
    for name, part in value.items():
        number, status, message = classify(part)
        if number is None:
            return None, "invalid", f"{name}: {'None' if status == 'missing' else message}"
        parts[plain(name)] = number
    return parts, "ok", None


def shown(value: Any) -> str:
    """The beginning of a value's representation."""
    try:
        awaited = "; await it, for instance by asyncio.gather" if type(value).__name__ == "coroutine" else ""
        return steady(repr(value))[:SHOWN] + awaited
    except Exception:
        return f"a {type(value).__name__}"


def steady(text: str) -> str:
    """Without addresses in memory, which differ from process to process: messages are the same each time."""
    return ADDRESS.sub("", plain(text))


def plain(text: str) -> str:
    """Text that every table takes: no halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode("utf-8")
