"""Finding a user's function in the executor: importing it, and what its signature says."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from stages.score.calling.verdict import plain

Function = Callable[..., Any]
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
STDLIB = tuple({str(Path(os.__file__).parent), sys.base_prefix, sys.prefix})


class FaultError(Exception):
    """What is wrong with the function as a whole, whatever the rows."""


def load(spec: str) -> Function:
    """The function `module:name` or `path/to/file.py:name`."""
    place, _, name = spec.rpartition(":")
    try:
        module = _file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        function = getattr(module, name)
    except SystemExit:
        raise
    except BaseException as error:  # whatever importing raises: a KeyboardInterrupt, too
        raise FaultError(f"{type(error).__name__}: {error}") from error
    if not callable(function):
        raise FaultError(f"{name} is not a function")
    return function  # type: ignore[no-any-return]


def _file(path: Path) -> ModuleType:
    """A file as a module, with its folder first on the path, as if Python ran it: files beside it can be imported."""
    sys.path.insert(0, str(path.resolve().parent))
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else "reward_file"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def about(function: Function) -> dict[str, Any]:
    """What can be said of the function without calling it."""
    rows = getattr(function, "rows_per_call", None)
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
        raise FaultError(f"its attribute rows_per_call is {rows!r}; it has to be a number of rows, 1 or more")
    has_check = callable(getattr(function, "check", None))
    has_needs = any(hasattr(function, name) for name in ("needs", "needs_seconds"))
    return _signature(function) | {"rows_per_call": rows, "has_check": has_check, "has_needs": has_needs}


def _signature(function: Function) -> dict[str, Any]:
    """Parameters by name, and those without a default. A callable that has no signature takes whatever it is given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {"parameters": [], "required": [], "takes_all": True}
    named = [parameter for parameter in parameters if parameter.kind in NAMED]
    unnamed = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    if unnamed:
        raise FaultError(f"it takes {', '.join(unnamed)} by position only; everything is passed by name")
    return {
        "parameters": [parameter.name for parameter in named],
        "required": [parameter.name for parameter in named if parameter.default is parameter.empty],
        "takes_all": any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters),
    }


def own_files() -> dict[str, list[int]]:
    """Files that were imported from elsewhere than Python and its packages: modification time and size of each."""
    found: dict[str, list[int]] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or file.startswith(STDLIB) or "site-packages" in file:
            continue
        try:
            known = os.stat(file)
        except OSError:
            continue
        found[plain(file)] = [known.st_mtime_ns, known.st_size]
    return found
