"""What all built-in rewards share: light imports, arguments checked by name, extras that are told when missing."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from stages.common.params import ParamsError, Reward
from stages.score.calling.function import UserFunction, of_reward
from stages.score.calling.inspection import check_function

FUNCTIONS = {  # with arguments that `check` takes
    "exact_match:exact_match": {},
    "numeric_match:numeric_match": {},
    "math_answer:math_answer": {},
    "pattern:matches": {"patterns": "a"},
    "length:length_penalty": {"scale": 1, "low": 1},
    "repetition:repetition_penalty": {"n": 2},
    "python_tests:passes_tests": {"unlocked": True},
    "http_reward:http_reward": {"url": "http://x"},
    "chat_judge:chat_judge": {"base_url": "http://x", "model": "m", "template": "{completion}"},
    "gym:gym_reward": {},
    "overlong:soft_overlong": {"max_length": 8, "cache": 2},
}
HEAVY = {
    "torch",
    "transformers",
    "polars",
    "pydantic",
    "numpy",
    "httpx",
    "sympy",
    "math_verify",
    "reasoning_gym",
    "dvc",
}


def given(spec: str, arguments: dict) -> UserFunction:
    return of_reward("x", Reward(function=f"stages.score.{spec}", arguments=arguments))


def loaded(spec: str):
    module, _, name = spec.partition(":")
    return getattr(importlib.import_module(f"stages.score.{module}"), name)


def test_importing_them_imports_nothing_heavy():
    modules = ", ".join(f"stages.score.{spec.partition(':')[0]}" for spec in FUNCTIONS)
    script = f"import sys, {modules}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("spec", FUNCTIONS)
def test_arguments_are_checked_before_anything_is_sampled(spec):
    check_function(given(spec, FUNCTIONS[spec]), None)
    with pytest.raises(ParamsError, match="no_such_argument"):
        check_function(given(spec, FUNCTIONS[spec] | {"no_such_argument": 1}), None)


@pytest.mark.parametrize("spec", FUNCTIONS)
def test_check_knows_the_functions_own_arguments_and_defaults(spec):
    """What `check` takes is what the function takes beside columns, with the same defaults."""
    function = loaded(spec)
    columns = {"prompts", "completions", "completion_ids"}
    taken = {n: p.default for n, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD}
    checked = {n: p.default for n, p in inspect.signature(function.check).parameters.items()}
    assert {n: d for n, d in taken.items() if n not in columns} == checked


@pytest.mark.parametrize(
    ("spec", "arguments", "columns"),
    [
        ("exact_match:exact_match", {}, {"answer"}),
        ("numeric_match:numeric_match", {"column": "gold", "relative": 0.1}, {"gold"}),
        ("math_answer:math_answer", {"column": "gold", "seconds": 3}, {"gold"}),
        ("python_tests:passes_tests", {}, {"tests"}),
        ("python_tests:passes_tests", {"column": "t", "unlocked": True}, {"t"}),
        ("gym:gym_reward", {"extract": "boxed"}, {"gym_task", "gym_entry", "gym_config"}),
        ("chat_judge:chat_judge", FUNCTIONS["chat_judge:chat_judge"] | {"template": "{completion}{x}"}, {"x"}),
    ],
)
def test_the_columns_that_a_function_needs(spec, arguments, columns):
    assert loaded(spec).needs(**arguments) == columns


@pytest.mark.parametrize("spec", FUNCTIONS)
def test_what_a_function_says_of_itself_takes_all_its_arguments(spec):
    function = loaded(spec)
    given = {n: p.default for n, p in inspect.signature(function.check).parameters.items()} | FUNCTIONS[spec]
    for says, kind in (("needs", set), ("needs_seconds", dict)):
        if hasattr(function, says):
            assert isinstance(getattr(function, says)(**given), kind)


@pytest.mark.parametrize("spec", FUNCTIONS)
def test_default_arguments_fit_into_the_default_limits(spec):
    needed = getattr(loaded(spec), "needs_seconds", lambda **_: {"row": 0, "batch": 0})(**FUNCTIONS[spec])
    limits = Reward(function="a:b").limits
    assert needed["row"] <= limits.row_seconds
    assert needed["batch"] <= limits.batch_seconds


@pytest.mark.parametrize(
    ("module", "package", "extra"), [("math_answer", "math_verify", "math"), ("gym", "reasoning_gym", "gym")]
)
def test_a_missing_extra_is_told(module, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"pip install 'rloo-pipeline\[{extra}\]'"):
        importlib.import_module(f"stages.score.{module}").check()


def test_every_built_in_reward_is_documented():
    text = (Path(__file__).parents[3] / "docs" / "built_in_rewards.md").read_text(encoding="utf-8")
    for spec in FUNCTIONS:
        assert f"stages.score.{spec}" in text
        function = loaded(spec)
        for argument in inspect.signature(function.check).parameters:
            assert f"`{argument}`" in text, (spec, argument)
