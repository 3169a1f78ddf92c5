"""Verdicts as columns of a table, and their weighted sum.

A row's status is `ok`, `missing` (the function returned None: it does not apply), `invalid` (not a finite number),
`timeout` or `error`. Nothing ever turns into 0. `task_reward` is the weighted sum of the rewards that apply; it is null
where none does, or where any of them has failed: a sum with a hole in it could not be compared with its siblings'.

Functions are called in child processes: `stages/score/calling`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from stages.common.params import Reward
from stages.score.calling.cache import Row
from stages.score.calling.function import UserFunction, of_reward
from stages.score.calling.inspection import check_functions
from stages.score.calling.rows import call_rows
from stages.score.calling.side_by_side import side_by_side
from stages.score.calling.threshold import check_failed
from stages.score.calling.verdict import Verdict, classify
from stages.score.calling.worker import RewardError
from stages.score.inputs import columns_of, reward_inputs

__all__ = [
    "ROOM",
    "NamedBy",
    "OfModel",
    "RewardError",
    "Verdict",
    "add_task_reward",
    "check_functions",
    "classify",
    "columns_of",
    "reward_columns",
    "reward_inputs",
]

ROOM = Path(__file__).resolve().parent

OfModel = Callable[[Reward], Sequence[Verdict]]
NamedBy = Callable[[str, Reward], UserFunction]  # where params.yaml names a reward's function


def no_models(reward: Reward) -> Sequence[Verdict]:
    raise RewardError(f"score.rewards: the reward model {reward.model!r} cannot be had here, only functions can")


def reward_columns(
    rewards: dict[str, Reward],
    inputs: dict[str, list[Any]],
    of_model: OfModel = no_models,
    *,
    max_failed: float | None = None,
    named_by: NamedBy = of_reward,
) -> pl.DataFrame:
    """Columns `reward/<name>`, `status/<name>`, `message/<name>` for each reward, and `task_reward`.

    `inputs` are for functions; `of_model` scores the same rows with a reward model (`stages.score.model_reward`).
    `max_failed`: the share of rows that a reward may fail to score (`score.max_failed`); None: any. A RewardError if a
    function is wrong as a whole, or fails on more rows.
    """
    found = verdicts(rewards, inputs, of_model, max_failed, named_by)
    columns: dict[str, pl.Series] = {}
    for name in rewards:
        values, statuses, messages = zip(*found[name], strict=True) if found[name] else ((), (), ())
        columns[f"reward/{name}"] = pl.Series(values, dtype=pl.Float64)
        columns[f"status/{name}"] = pl.Series(statuses, dtype=pl.String)
        columns[f"message/{name}"] = pl.Series(messages, dtype=pl.String)
    return add_task_reward(pl.DataFrame(columns), rewards)


def verdicts(
    rewards: dict[str, Reward],
    inputs: dict[str, list[Any]],
    of_model: OfModel,
    max_failed: float | None,
    named_by: NamedBy,
) -> dict[str, Sequence[Row]]:
    """Of each reward: functions side by side in their processes, and models meanwhile in this one."""
    found: dict[str, Sequence[Row]] = {}

    def models() -> None:
        for name, reward in rewards.items():
            if reward.model is not None:
                found[name] = of_model(reward)
                told = f"score.rewards.{name}.model = {reward.model!r}"
                check_failed(told, None, found[name], inputs, max_failed, len(found[name]))

    functions = [named_by(name, reward) for name, reward in rewards.items() if reward.function is not None]
    rows = side_by_side([partial(call_rows, function, inputs, max_failed) for function in functions], models)
    names = [name for name, reward in rewards.items() if reward.function is not None]
    return found | dict(zip(names, rows, strict=True))


def add_task_reward(frame: pl.DataFrame, rewards: dict[str, Reward]) -> pl.DataFrame:
    """The weighted sum as defined above."""
    weighted = [pl.col(f"reward/{name}") * reward.weight for name, reward in rewards.items()]
    scored = pl.any_horizontal(pl.col(f"status/{name}") == "ok" for name in rewards)
    broken = pl.any_horizontal(~pl.col(f"status/{name}").is_in(["ok", "missing"]) for name in rewards)
    total = pl.sum_horizontal(weighted, ignore_nulls=True)
    return frame.with_columns(task_reward=pl.when(scored & ~broken).then(total))
