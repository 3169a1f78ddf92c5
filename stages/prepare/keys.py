"""Keys of endpoints, which the environment holds: params.yaml only names the variables."""

import os

from stages.common.params import Params, ParamsError


def key_variables(params: Params) -> dict[str, str]:
    """By place: the environment variables that hold keys of endpoints."""
    judge, best_of = params.judge, params.sft.best_of if params.sft is not None else None
    arguments = {
        f"{section}.rewards.{name}": reward.arguments
        for section, named in (("score", params.score.rewards), ("evaluate", params.evaluate.rewards))
        for name, reward in named.items()
    }
    arguments |= {"judge": judge.arguments} if judge is not None else {}
    arguments |= {"sft.best_of": best_of.arguments} if best_of is not None else {}
    for name, model in params.reward_models.items():
        if model.preferences is not None and model.preferences.sampled is not None:
            arguments[f"reward_models.{name}.preferences.sampled"] = model.preferences.sampled.arguments
    named = {f"{place}.arguments.key_variable": given.get("key_variable") for place, given in arguments.items()}
    if judge is not None and judge.endpoint is not None:
        named["judge.endpoint.key_variable"] = judge.endpoint.key_variable
    return {place: variable for place, variable in named.items() if isinstance(variable, str)}


def missing_keys(params: Params) -> dict[str, str]:
    """By place: what to say of a variable that is not set, or empty."""
    return {
        place: f"the environment has no {variable}, which holds the key: set it before the run starts"
        for place, variable in key_variables(params).items()
        if not os.environ.get(variable)
    }


def check_keys(params: Params) -> None:
    """A ParamsError names every variable that is not set."""
    missing = missing_keys(params)
    if missing:
        raise ParamsError("; ".join(f"params.yaml: {place}: {why}" for place, why in missing.items()))
