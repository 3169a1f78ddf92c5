"""Reward functions: what they receive, what their results mean, and what becomes of those that fail."""

import math

import numpy as np
import polars as pl
import pytest
import torch

from stages.common.errors import StageError
from stages.common.params import ParamsError, Reward
from stages.common.tables import PROMPTS, ROLLOUTS
from stages.score.inputs import columns_of as columns_announced
from stages.score.rewards import (
    RewardError,
    add_task_reward,
    classify,
    reward_columns,
    reward_inputs,
)

MODULE = "rloo_test_rewards"


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Write the module that reward functions under test live in."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return lambda text: (tmp_path / f"{MODULE}.py").write_text(text)


def columns_of(function, count=3, weight=1.0, **more):
    rewards = {"one": Reward(function=f"{MODULE}:{function}", weight=weight)}
    return reward_columns(rewards, {"completions": [f"answer {i}" for i in range(count)], **more})


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0, 0.0),
        (1, 1.0),
        (-2.5, -2.5),
        (True, 1.0),
        (False, 0.0),
        (np.float32(0.5), 0.5),
        (np.array(0.5), 0.5),
        (torch.tensor(0.5), 0.5),
    ],
)
def test_numbers_are_ok(value, number):
    assert classify(value) == (number, "ok", None)


def test_none_is_missing():
    assert classify(None) == (None, "missing", "the function returned None")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan"), torch.tensor(math.inf)])
def test_what_is_not_finite_is_invalid(value):
    number, status, message = classify(value)
    assert (number, status) == (None, "invalid")
    assert message.startswith("not finite: ")


@pytest.mark.parametrize("value", ["good", "", [1.0], {"reward": 1.0}, 1j, torch.ones(2)])
def test_what_is_no_number_is_invalid_and_told(value):
    number, status, message = classify(value)
    assert (number, status) == (None, "invalid")
    assert message == f"not a number: {value!r:.80}"


def test_what_has_no_text_of_its_own_is_told_without_its_address():
    assert classify(object()) == (None, "invalid", "not a number: <object object>")


def test_message_of_a_long_value_is_short():
    assert len(classify("x" * 10_000)[2]) < 100


def test_integer_too_large_for_a_float_is_invalid():
    assert classify(10**400)[:2] == (None, "invalid")


def test_columns_hold_reward_status_and_message(code):
    code("def f(completions): return [1, None, float('nan')]")
    frame = columns_of("f")
    assert frame.to_dict(as_series=False) == {
        "reward/one": [1.0, None, None],
        "status/one": ["ok", "missing", "invalid"],
        "message/one": [None, "the function returned None", "not finite: nan"],
        "task_reward": [1.0, None, None],
    }
    assert frame.schema["reward/one"] == frame.schema["task_reward"] == pl.Float64


@pytest.mark.parametrize("returned", ["[None] * 3", "['?'] * 3", "[1, 1, 1]"])
def test_types_do_not_depend_on_the_values(code, returned):
    code(f"def f(completions): return {returned}")
    assert columns_of("f").dtypes == [pl.Float64, pl.String, pl.String, pl.Float64]


OK, NO, BAD = "ok", "missing", "invalid"


@pytest.mark.parametrize(
    ("statuses", "values", "weights", "expected"),
    [
        ((OK, OK), (1.0, 2.0), (1.0, 1.0), 3.0),
        ((OK, OK), (1.0, 2.0), (0.5, -2.0), -3.5),
        ((OK, OK), (0.0, 0.0), (1.0, 1.0), 0.0),
        ((OK, OK), (1.0, 2.0), (0.0, 1.0), 2.0),
        ((OK, NO), (1.0, None), (3.0, 1.0), 3.0),
        ((NO, OK), (None, 2.0), (3.0, 1.0), 2.0),
        ((NO, NO), (None, None), (1.0, 1.0), None),
        ((OK, BAD), (1.0, None), (1.0, 1.0), None),
        ((BAD, NO), (None, None), (1.0, 1.0), None),
        ((OK, "error"), (1.0, None), (1.0, 1.0), None),
        ((OK, "timeout"), (1.0, None), (1.0, 1.0), None),
    ],
)
def test_task_reward_is_the_weighted_sum_of_what_applies_or_null(statuses, values, weights, expected):
    names = ("a", "b")
    columns = {f"reward/{n}": pl.Series([v], dtype=pl.Float64) for n, v in zip(names, values, strict=True)}
    columns |= {f"status/{n}": pl.Series([s]) for n, s in zip(names, statuses, strict=True)}
    rewards = {n: Reward(function="m:f", weight=w) for n, w in zip(names, weights, strict=True)}
    assert add_task_reward(pl.DataFrame(columns), rewards)["task_reward"].to_list() == [expected]


def test_several_functions_are_summed_with_their_weights(code):
    code("def f(completions): return [1, 2]\ndef g(completions): return [None, 10]")
    rewards = {
        "f": Reward(function=f"{MODULE}:f", weight=2.0),
        "g": Reward(function=f"{MODULE}:g", weight=0.5),
    }
    frame = reward_columns(rewards, {"completions": ["a", "b"]})
    assert frame["task_reward"].to_list() == [2.0, 9.0]


@pytest.mark.parametrize(("returned", "count"), [("[1, 2]", 2), ("[1] * 4", 4), ("[]", 0)])
def test_wrong_number_of_values_is_an_error_that_names_the_function(code, returned, count):
    code(f"def f(completions): return {returned}")
    with pytest.raises(RewardError) as error:
        columns_of("f")
    message = str(error.value)
    assert f"score.rewards.one.function = '{MODULE}:f' returned {count} values for 3 completions" in message


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ZeroDivisionError('no rows')", "raised ZeroDivisionError: no rows"),
        ("return None", "returned None, not a list"),
        ("return 1.0", "returned a float (1.0), not a list"),
        ("return [completions[5]]", "raised IndexError"),
    ],
)
def test_function_that_fails_is_an_error_that_names_it(code, body, told):
    code(f"def f(completions): {body}")
    with pytest.raises(RewardError) as error:
        columns_of("f")
    assert f"score.rewards.one.function = '{MODULE}:f' {told}" in str(error.value)


def test_function_that_lacks_a_parameter_is_an_error(code):
    code("def f(completions): return [1] * len(completions)")
    with pytest.raises(RewardError, match="unexpected keyword argument 'subject'"):
        columns_of("f", subject=["x"] * 3)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("no_such_module_here:f", "no module 'no_such_module_here' here"),
        (f"{MODULE}:g", "has no attribute 'g'"),
        (f"{MODULE}:NUMBER", "NUMBER is not a function"),
    ],
)
def test_function_that_cannot_be_had_is_named_with_its_option(code, spec, told):
    code("NUMBER = 3\ndef f(completions): return []")
    with pytest.raises(StageError) as error:
        reward_columns({"one": Reward(function=spec)}, {"completions": ["a"]})
    assert str(error.value).startswith(f"params.yaml: score.rewards.one.function = {spec!r}: ")
    assert told in str(error.value)


@pytest.mark.parametrize("text", ["def f(:", "1 / 0"], ids=["syntax", "raises"])
def test_module_that_is_broken_is_named_with_its_option(code, text):
    code(text)
    with pytest.raises(StageError, match=r"params\.yaml: score\.rewards\.one\.function"):
        columns_of("f")


def test_async_function_is_awaited(code):
    code("import asyncio\nasync def f(completions):\n    return await asyncio.sleep(0, [len(c) for c in completions])")
    assert columns_of("f")["reward/one"].to_list() == [8.0, 8.0, 8.0]


def test_async_function_that_raises_is_an_error(code):
    code("async def f(completions): raise OSError('server is down')")
    with pytest.raises(RewardError, match="raised OSError: server is down"):
        columns_of("f")


@pytest.mark.parametrize(
    "returned",
    ["numpy.array([1.0, 2.0])", "torch.tensor([1.0, 2.0])", "(float(c) for c in completions)", "(1, 2)"],
)
def test_values_may_come_as_array_tensor_generator_or_tuple(code, returned):
    module = returned.partition(".")[0]
    code(f"import {module if module in ('numpy', 'torch') else 'math'}\ndef f(completions): return {returned}")
    rewards = {"one": Reward(function=f"{MODULE}:f")}
    assert reward_columns(rewards, {"completions": ["1", "2"]})["reward/one"].to_list() == [1.0, 2.0]


def test_functions_receive_the_names_of_trl_and_the_columns_of_the_dataset():
    row = {name: [None] for name in {**ROLLOUTS, **PROMPTS}}
    row |= {"prompt": ["Why?"], "completion": ["So."], "completion_ids": [[5, 6]], "finish_reason": ["stop"]}
    row |= {"subject": ["tea"], "answer": [4], "length": [2], "prompt_id": ["p1"]}
    inputs = reward_inputs(pl.DataFrame(row))
    assert inputs["prompts"] == ["Why?"]
    assert inputs["completions"] == ["So."]
    assert inputs["completion_ids"] == [[5, 6]]
    assert inputs["finish_reason"] == ["stop"]
    assert (inputs["subject"], inputs["answer"], inputs["prompt_id"]) == (["tea"], [4], ["p1"])
    hidden = {"prompt_text", "prompt_ids", "sampler_logprobs", "seed", "position", "entropy", "kind", "prompt"}
    assert not hidden & set(inputs)
    assert "completion" not in inputs


def test_columns_reach_the_function_by_name_and_in_row_order(code):
    code("def f(completions, subject, **rest): return [float(s in c) for s, c in zip(subject, completions)]")
    assert columns_of("f", subject=["0", "9", "2"])["reward/one"].to_list() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("spec", ["own/outside.py:f", "own.outside:f", "outside_the_room:f"])
def test_files_and_modules_anywhere_in_the_project_are_called_with_what_lies_beside_them(tmp_path, monkeypatch, spec):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own").mkdir()
    helper = "from own.beside import ONE" if spec.startswith("own.") else "from beside import ONE"
    text = f"{helper}\ndef f(completions, **columns): return [ONE] * len(completions)\n"
    folder = tmp_path if spec.startswith("outside") else tmp_path / "own"
    (folder / "beside.py").write_text("ONE = 1.0")
    (folder / ("outside_the_room.py" if spec.startswith("outside") else "outside.py")).write_text(text)
    assert reward_columns({"a": Reward(function=spec)}, {"completions": ["x"]})["reward/a"].to_list() == [1.0]


def test_arguments_of_the_params_reach_the_function_by_name(code):
    code("def f(completions, factor, **columns): return [factor * len(c) for c in completions]")
    reward = Reward(function=f"{MODULE}:f", arguments={"factor": 0.5})
    found = reward_columns({"one": reward}, {"completions": ["ab", "abcd"]})
    assert found["reward/one"].to_list() == [1.0, 2.0]


def test_an_argument_called_like_a_column_is_refused(code):
    code("def f(completions, **columns): return [1.0]")
    reward = Reward(function=f"{MODULE}:f", arguments={"subject": "x"})
    with pytest.raises(ParamsError, match=r"score\.rewards\.one\.arguments: \['subject'\] are columns"):
        reward_columns({"one": reward}, {"completions": ["a"], "subject": ["y"]})


TURNS = [{"role": "user", "content": "Why?"}]


def test_conversations_come_as_in_trl_and_texts_as_texts():
    schema = {"prompt": pl.String, "messages": PROMPTS["messages"], "completion": pl.String, "prompt_tail": pl.String}
    rows = pl.DataFrame([["Why?", TURNS, "So.", "<think>"], ["How?", None, "Thus.", ""]], schema=schema, orient="row")
    inputs = reward_inputs(rows)
    assert inputs == {
        "prompts": [TURNS, "How?"],
        "completions": [[{"role": "assistant", "content": "So."}], "Thus."],
        "prompt_tail": ["<think>", ""],
    }
    assert reward_inputs(rows.filter(pl.col("messages").is_null()))["completions"] == ["Thus."]


def test_the_columns_that_are_announced_are_those_that_come(tmp_path):
    prompts = pl.DataFrame({**{name: [None] for name in PROMPTS}, "answer": ["4"]})
    prompts.write_parquet(tmp_path / "prompts.parquet")
    row = {name: [None] for name in {**ROLLOUTS, **PROMPTS}} | {"answer": ["4"]}
    assert set(reward_inputs(pl.DataFrame(row))) == columns_announced(tmp_path / "prompts.parquet")
    assert columns_announced(tmp_path / "none.parquet") is None
