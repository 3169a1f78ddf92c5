"""Every function that params.yaml names, each by itself: a broken one does not hide the next."""

import ast
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from pipeline.check.findings import Finding, attempt
from stages.common.params import Params, Reward
from stages.prepare.keys import missing_keys
from stages.score.calling.function import UserFunction
from stages.score.calling.inspection import check_function, functions_of
from stages.score.rewards import columns_of


def check_each(params: Params, findings: list[Finding]) -> set[str]:
    """Check every function; returns the places of those that are wrong."""
    columns, wrong = columns_of(), set()
    for function, without in functions_of(params):
        known = columns - without if columns is not None else None
        if not attempt(findings, function.option, partial(_checked, function, known)):
            wrong.add(function.option.removesuffix(".function"))
    for place, text in missing_keys(params).items():
        findings.append(Finding("error", place, text))
        wrong.add(place.removesuffix(".key_variable").removesuffix(".arguments"))
    return wrong


def _checked(function: UserFunction, columns: set[str] | None) -> bool:
    check_function(function, columns)
    return True


def signature(reward: Reward) -> str | None:
    """The function's parameters as its source has them, read and not imported; None if they are not to be found."""
    place, _, name = (reward.function or "").rpartition(":")
    try:
        spec = None if place.endswith(".py") else find_spec(place)
        file = Path(place) if spec is None else Path(spec.origin or "")
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ImportError, ValueError, AttributeError, SyntaxError):
        return None
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in tree.body:
        if isinstance(node, kinds) and node.name == name:
            return f"{name}({ast.unparse(node.args)})"
    return None
