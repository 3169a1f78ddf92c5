"""Every function that params.yaml names, each by itself: a broken one does not hide the next."""

import ast
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from pipeline.check.findings import Finding, attempt
from pipeline.check.prepared import some
from stages.common import paths
from stages.common.params import Params, Reward
from stages.prepare.keys import missing_keys
from stages.score.calling.inspection import check_function, functions_of
from stages.score.rewards import columns_of


def check_each(params: Params, findings: list[Finding]) -> set[str]:
    """Check every function; returns the places of those that are wrong."""
    columns, wrong = columns_of(), set()
    prompts = pl.read_parquet(paths.PROMPTS) if columns is not None else None
    for function, without in functions_of(params):
        known = columns - without if columns is not None else None
        needed = attempt(findings, function.option, partial(check_function, function, known))
        if needed is None:
            wrong.add(function.option.removesuffix(".function"))
        elif prompts is not None:
            findings += empty_cells(function.option, needed, prompts)
    for place, text in missing_keys(params).items():
        findings.append(Finding("error", place, text))
        wrong.add(place.removesuffix(".key_variable").removesuffix(".arguments"))
    return wrong


def empty_cells(option: str, needed: set[str], prompts: pl.DataFrame) -> list[Finding]:
    """Prompts that lack a value in a column that a function needs; it can hardly score them."""
    found = []
    for column in sorted(needed & set(prompts.columns)):
        ids = prompts.filter(pl.col(column).is_null())["prompt_id"].to_list()
        if ids:
            text = f"column {column} is null in {len(ids)} of {prompts.height} prompts: {some(ids)}"
            way_out = (
                f"give them a value, or declare it (prepare.prompts, columns: {{{column}: ...}}) to have them refused"
            )
            found.append(Finding("warning", option, f"{text}; {way_out}"))
    return found


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
