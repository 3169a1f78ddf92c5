"""Everything that can be told before a single row is scored."""

from collections.abc import Sequence

import polars as pl

from stages.common import paths
from stages.common.code_identity import CodeError, code_identity
from stages.common.errors import StageError
from stages.common.params import Params, ParamsError, Reward
from stages.common.tables import GROUP
from stages.rescore.rewards_file import Rewards
from stages.score.calling.function import of_reward
from stages.score.calling.inspection import check_function
from stages.score.rewards import columns_of


def check_rewards(rewards: dict[str, Reward], option: str) -> None:
    """Look at the functions: what they take, and what they need. `option`: the section that errors speak of."""
    for name, reward in rewards.items():
        if reward.function is not None:
            check_function(of_reward(name, reward, option), columns_of())


def check_given(given: Rewards, params: Params) -> None:
    """The rewards as such: functions that are there, models that were trained, and the one that classes groups."""
    for name, reward in given.rewards.items():
        if reward.function is not None:
            check_code(reward.function, f"{given.place(name)}.function")
        if reward.model is not None:
            check_model(reward.model, f"{given.place(name)}.model", params)
    try:
        check_rewards(given.rewards, "score.rewards")
    except ParamsError as error:
        raise ParamsError(given.placed(str(error))) from error
    outcome = params.advantage.outcome_reward
    if outcome is not None and outcome not in given.rewards:
        raise ParamsError(
            f"{given.source}: no reward {outcome!r}, by which advantage.outcome_reward in params.yaml classes groups; "
            "add it (with weight 0 it changes no score), or set advantage.outcome_reward to null"
        )


def check_code(spec: str, place: str) -> None:
    """The code of a function is there; its error gets the place."""
    try:
        code_identity(spec)
    except CodeError as error:
        raise ParamsError(f"{place} = {spec!r}: {error}") from None


def check_model(name: str, place: str, params: Params) -> None:
    """The reward model is one of params.yaml, and there."""
    if name not in params.reward_models:
        known = ", ".join(params.reward_models) or "none"
        raise ParamsError(f"{place} = {name!r} is none of reward_models in params.yaml: {known}")
    if not (paths.reward_model(name) / "config.json").exists():
        raise ParamsError(
            f"{place} = {name!r}: {paths.reward_model(name)} holds no model; `dvc repro reward_model@{name}` makes it"
        )


def check_estimator(name: str, old: pl.DataFrame, params: Params) -> None:
    """The old scores of an iteration hold what params.yaml needs for the new advantages."""
    path, kl = paths.scores(name), params.score.kl
    if kl.beta and old["kl"].null_count():
        raise StageError(
            f"{path} has no KL: it was made with score.kl.beta 0, and params.yaml has {kl.beta:g}. Set beta to 0, or "
            f"score again: dvc repro score@{name}"
        )
    if params.advantage.estimator == "gae" and old["values"].null_count():
        raise StageError(
            f"{path} has no values of a critic, which advantage.estimator gae takes: it was made without one. Score "
            f"again with a section `critic` (dvc repro score@{name}), or choose another estimator"
        )
    greedy = ((pl.col("kind") == "greedy").any().over(GROUP)) | ~pl.col("accepted")
    if params.advantage.estimator == "remax" and not old.select(greedy.all()).item():
        raise StageError(
            f"{path} has no greedy completions, which advantage.estimator remax compares with: sample with "
            "rollout.greedy true, or choose another estimator"
        )


def check_past(chosen: Sequence[str], ready: Sequence[str], params: Params) -> None:
    """A moving average goes on from the iteration before, which is scored anew too, or is up to date (`ready`)."""
    if params.advantage.estimator != "moving_average":
        return
    first = paths.iteration_name(1)
    for name in chosen:
        if name != first and paths.previous(name) not in (*chosen, *ready):
            raise StageError(
                f"--iterations: advantage.estimator moving_average carries on from {paths.previous(name)}, which is "
                f"not scored with these rewards; give {first}-{chosen[-1]}"
            )
