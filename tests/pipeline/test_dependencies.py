"""Each stage of dvc.yaml depends on the code that it runs: what its module imports of `stages`, and what that imports.

What a stage leaves out stands below with the reason, and a reason that is no longer needed is an error, too.
"""

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

from stages.prepare.run import PLACES
from tests.workspace import ROOT

STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]

ALLOWED = {  # stage: {folder or file: why the stage does not depend on it}
    "prepare_sources": {"stages": "it always runs"},
    "window_entry": {"pipeline/windows": "it takes files by their hash and computes nothing"},
    "prepare_prompts": {"stages/score": "data/sources/prompts.json holds its hash where golden answers are verified"},
    "sft_demonstrations": {"stages/score": "data/sft_source.json holds its hash where answers are scored"},
    "rollout": {"stages/score": "data/acceptance.json holds its hash where rewards decide which groups are accepted"},
}


@cache
def imported(file: Path) -> frozenset[Path]:
    """Files of the project's `stages` that a file imports, at its top or later."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(place for name in names if (place := file_of(name)) is not None)


def file_of(module: str) -> Path | None:
    if module.partition(".")[0] != "stages":
        return None
    path = Path(*module.split("."))
    found = next((one for one in (path.with_suffix(".py"), path / "__init__.py") if (ROOT / one).is_file()), None)
    return found if found and (ROOT / found).stat().st_size else None


def closure(start: Path) -> set[Path]:
    seen, todo = set(), [start]
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            todo += imported(file)
    return seen


def start_of(command: str) -> Path:
    """The module that a stage's command runs."""
    module, stage, part = command.split()[-3:]
    if module != "pipeline.stage":
        return Path(*stage.split(".")).with_suffix(".py")
    if stage == "prepare":
        return Path("stages/prepare", *PLACES.get(part, part).split(".")).with_suffix(".py")
    own = Path("stages", stage, f"{part}.py")  # a part of its own, such as sft policy
    return own if stage == "sft" else Path("stages", stage, "run.py")


def within(file: Path, place: str) -> bool:
    return file == Path(place) or Path(place) in file.parents


def left_out(name: str) -> set[Path]:
    """Files that the stage runs, or may run, and does not depend on."""
    stage = STAGES[name].get("do", STAGES[name])
    deps = [dep for dep in stage.get("deps", []) if dep.startswith("stages")]
    return {file for file in closure(start_of(stage["cmd"])) if not any(within(file, dep) for dep in deps)}


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_the_code_that_it_runs(name):
    allowed = ALLOWED.get(name, {})
    assert {str(file) for file in left_out(name) if not any(within(file, place) for place in allowed)} == set()


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_stage_leaves_out_is_what_it_runs(name):
    missing = left_out(name)
    assert all(any(within(file, place) for file in missing) for place in ALLOWED[name])


@pytest.mark.parametrize("name", STAGES)
def test_dependencies_on_code_are_there(name):
    stage = STAGES[name].get("do", STAGES[name])
    assert [dep for dep in stage.get("deps", []) if dep.startswith("stages") and not (ROOT / dep).exists()] == []
