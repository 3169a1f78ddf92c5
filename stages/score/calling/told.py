"""What a function tells of itself before it is called: the attributes that it may carry beside its signature.

    rows_per_call   a number: how many rows it is called with, if params.yaml does not say
    check           check(**arguments): refuses them with a ValueError
    needs           a set of the columns that it reads from **columns, or a function of its arguments that returns one
    needs_seconds   needs_seconds(**arguments): {"row": x, "batch": y}, the least that its limits have to allow

Read in the executor; the standard library alone.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from stages.score.calling.user_code import FaultError, Function
from stages.score.calling.verdict import plain

CALLS = ("row", "batch")


def needs(function: Function, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"columns": sorted names, "seconds": {"row": ..., "batch": ...}}, as far as the function says it."""
    return {"columns": _columns(function, arguments), "seconds": _seconds(function, arguments)}


def _columns(function: Function, arguments: Mapping[str, Any]) -> list[str]:
    wanted = getattr(function, "needs", ())
    found = wanted(**arguments) if callable(wanted) else wanted
    if not isinstance(found, (set, frozenset, list, tuple)) or not all(isinstance(name, str) for name in found):
        raise FaultError(f"its attribute needs gives {found!r}; it has to be a set of names of columns")
    return sorted(map(plain, found))


def _seconds(function: Function, arguments: Mapping[str, Any]) -> dict[str, float]:
    told: Callable[..., Any] | None = getattr(function, "needs_seconds", None)
    found = {} if told is None else told(**arguments)
    if not isinstance(found, Mapping) or not all(name in CALLS and _is_time(found[name]) for name in found):
        raise FaultError(f"its attribute needs_seconds gives {found!r}; it has to be {{'row': x, 'batch': y}}")
    return {name: float(found[name]) for name in found}


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
