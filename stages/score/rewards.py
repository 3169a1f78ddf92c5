"""Rewards. Functions: loading them, calling them, and what happens to rows that they cannot score.

A row's status is `ok`, `missing` (the function returned None: it does not apply) or `invalid` (not a finite number).
Nothing ever turns into 0. `task_reward` is the weighted sum of the rewards that apply; it is null where none does, or
where any of them is invalid: a sum with a hole in it could not be compared with its siblings'.
"""

import asyncio
import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stages.common.errors import StageError
from stages.common.params import Params, ParamsError, Reward

ROOM = Path(__file__).resolve().parent

Function = Callable[..., Any]
Verdict = tuple[float | None, str, str | None]  # reward, status, message of one row
OfModel = Callable[[Reward], Sequence[Verdict]]


class RewardError(StageError):
    """A reward function that is wrong as a whole; the message names it and the remedy."""


def load_function(spec: str, option: str) -> Function:
    """The function `module:name`, from this room or from an installed package.

    A file elsewhere in the project is refused: DVC would not notice when it changes, and keep old scores.
    """
    module_name, _, name = spec.partition(":")
    try:
        module = importlib.import_module(module_name)
        function = getattr(module, name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ParamsError(
            f"params.yaml: {option} = {spec!r}: {reason}; give an importable module:function, "
            "such as stages.score.my_rewards:brief for a file stages/score/my_rewards.py"
        ) from error
    file = Path(getattr(module, "__file__", None) or "/").resolve()
    if file.is_relative_to(Path.cwd()) and not file.is_relative_to(ROOM) and "site-packages" not in file.parts:
        raise ParamsError(
            f"params.yaml: {option} = {spec!r}: {file.name} is no dependency of the score stage; "
            f"move it to stages/score/ and name it stages.score.{file.stem}:{name}"
        )
    if not callable(function):
        raise ParamsError(f"params.yaml: {option} = {spec!r}: {name} is not a function")
    return function  # type: ignore[no-any-return]


def check_functions(params: Params) -> None:
    """Load every function that params.yaml names, so that a wrong name is told before anything is sampled."""
    named = {f"score.rewards.{name}": reward for name, reward in params.score.rewards.items()}
    named |= {f"evaluate.rewards.{name}": reward for name, reward in params.evaluate.rewards.items()}
    if params.judge is not None and params.judge.function is not None:
        named["judge"] = Reward(function=params.judge.function, arguments=params.judge.arguments)
    if params.sft is not None and params.sft.best_of is not None and params.sft.best_of.gold is not None:
        best_of = params.sft.best_of
        named["sft.best_of.gold"] = Reward(function=best_of.gold, arguments=best_of.arguments)
    for option, reward in named.items():
        if reward.function is not None:
            check_arguments(load_function(reward.function, f"{option}.function"), reward, f"{option}.arguments")
    if params.evaluate.parts is not None:
        load_function(params.evaluate.parts, "evaluate.parts")


def check_arguments(function: Function, reward: Reward, option: str) -> None:
    """Refuse arguments that the function does not take; those that it lacks may be columns of the prompts."""
    parameters = inspect.signature(function).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [name for name in reward.arguments if name not in parameters and not takes_all]
    if unknown:
        raise ParamsError(f"params.yaml: {option}: {reward.function} takes no {', '.join(unknown)}")
    check = getattr(function, "check", None)  # a function may know more about its own arguments
    if check is not None:
        try:
            check(**reward.arguments)
        except (TypeError, ValueError) as error:
            raise ParamsError(f"params.yaml: {option}: {error}") from None


def call(function: Function, inputs: dict[str, list[Any]], option: str) -> list[Any]:
    """One result per row, or an error that says what the function did instead."""
    try:
        result = function(**inputs)
        values = asyncio.run(result) if inspect.iscoroutine(result) else result
        values = list(values)
    except Exception as error:
        raise RewardError(f"{option} raised {type(error).__name__}: {error}") from error
    if len(values) != len(inputs["completions"]):
        raise RewardError(
            f"{option} returned {len(values)} values for {len(inputs['completions'])} completions; "
            "it has to return one for each, in order"
        )
    return values


def classify(value: Any) -> Verdict:
    """Reward, status and message of one returned value."""
    if value is None:
        return None, "missing", "the function returned None"
    try:
        number = None if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        return None, "invalid", f"not a number: {repr(value)[:80] if not isinstance(value, int) else 'too large'}"
    if not math.isfinite(number):
        return None, "invalid", f"not finite: {number}"
    return number, "ok", None


def given(name: str, reward: Reward, inputs: dict[str, list[Any]]) -> dict[str, Any]:
    """The columns and the function's own arguments, none of which may be called like a column."""
    twice = sorted(set(reward.arguments) & set(inputs))
    if twice:
        raise ParamsError(f"params.yaml: score.rewards.{name}.arguments: {twice} are columns that it receives anyway")
    return inputs | reward.arguments


def by_function(name: str, spec: str, reward: Reward, inputs: dict[str, list[Any]]) -> list[Verdict]:
    """What the function `spec` makes of each row."""
    option = f"score.rewards.{name}.function"
    values = call(load_function(spec, option), given(name, reward, inputs), f"{option} = {spec!r}")
    return [classify(value) for value in values]


def no_models(reward: Reward) -> Sequence[Verdict]:
    raise RewardError(f"score.rewards: the reward model {reward.model!r} cannot be had here, only functions can")


def reward_columns(
    rewards: dict[str, Reward], inputs: dict[str, list[Any]], of_model: OfModel = no_models
) -> pl.DataFrame:
    """Columns `reward/<name>`, `status/<name>`, `message/<name>` for each reward, and `task_reward`.

    `inputs` are for functions; `of_model` scores the same rows with a reward model (`stages.score.model_reward`).
    """
    columns: dict[str, pl.Series] = {}
    for name, reward in rewards.items():
        if reward.function is None:
            found = list(of_model(reward))
        else:
            found = by_function(name, reward.function, reward, inputs)
        for column, dtype, items in zip(
            ("reward", "status", "message"), (pl.Float64, pl.String, pl.String), zip(*found, strict=True), strict=True
        ):
            columns[f"{column}/{name}"] = pl.Series(items, dtype=dtype)
    return add_task_reward(pl.DataFrame(columns), rewards)


def add_task_reward(frame: pl.DataFrame, rewards: dict[str, Reward]) -> pl.DataFrame:
    """The weighted sum as defined above."""
    weighted = [pl.col(f"reward/{name}") * reward.weight for name, reward in rewards.items()]
    scored = pl.any_horizontal(pl.col(f"status/{name}") == "ok" for name in rewards)
    broken = pl.any_horizontal(~pl.col(f"status/{name}").is_in(["ok", "missing"]) for name in rewards)
    total = pl.sum_horizontal(weighted, ignore_nulls=True)
    return frame.with_columns(task_reward=pl.when(scored & ~broken).then(total))


def reward_inputs(rows: pl.DataFrame) -> dict[str, list[Any]]:
    """What a function receives by name: TRL's `prompts`, `completions`, `completion_ids`, and every other column.

    `completions` end before the end-of-sequence token; `finish_reason` says whether there was one.
    """
    renamed = {"prompt": "prompts", "completion": "completions"}
    hidden = {"prompt_text", "prompt_ids", "sampler_logprobs", "seed", "position", "entropy", "kind", "accepted"}
    columns: Sequence[str] = [name for name in rows.columns if name not in hidden]
    return {renamed.get(name, name): rows[name].to_list() for name in columns}
