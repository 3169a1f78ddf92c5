"""Every function that params.yaml names, each by itself: a broken one does not hide the next."""

import ast
import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipeline.check.findings import Finding, attempt
from stages.common.params import Evaluate, Params, Reward
from stages.score import rewards


def alone(params: Params) -> dict[str, Params]:
    """By place: the params with a single function left."""
    score, evaluate, sft = params.score, params.evaluate, params.sft
    quiet = evaluate.model_copy(update={"rewards": {}, "parts": None})
    none = params.model_copy(
        update={
            "score": score.model_copy(update={"rewards": {}}),
            "evaluate": quiet,
            "judge": None,
            "sft": None,
            "reward_models": {},
        }
    )

    def evaluated(**update: Any) -> dict[str, Evaluate]:
        return {"evaluate": quiet.model_copy(update=update)}

    one: dict[str, dict[str, Any]] = {
        f"score.rewards.{name}": {"score": score.model_copy(update={"rewards": {name: reward}})}
        for name, reward in score.rewards.items()
        if reward.function is not None
    }
    one |= {f"evaluate.rewards.{name}": evaluated(rewards={name: r}) for name, r in evaluate.rewards.items()}
    if evaluate.parts is not None:
        one["evaluate.parts"] = evaluated(parts=evaluate.parts)
    if params.judge is not None and params.judge.function is not None:
        one["judge.function"] = {"judge": params.judge}
    if sft is not None and sft.best_of is not None and sft.best_of.gold is not None:
        one["sft.best_of.gold"] = {"sft": sft}
    for name, model in params.reward_models.items():
        if model.preferences is not None and model.preferences.sampled is not None:
            one[f"reward_models.{name}.preferences.sampled.gold"] = {"reward_models": {name: model}}
    return {place: none.model_copy(update=update) for place, update in one.items()}


def check_each(params: Params, findings: list[Finding]) -> set[str]:
    """Check every function; returns the places of those that are wrong."""
    wrong = {place for place, one in alone(params).items() if not attempt(findings, place, partial(_checked, one))}
    for place, variable in key_variables(params).items():
        if not os.environ.get(variable):
            text = f"the environment has no {variable}, which holds the key: set it before the run starts"
            findings.append(Finding("error", place, text))
    return wrong


def _checked(params: Params) -> bool:
    columns_of: Any = getattr(rewards, "columns_of", None)
    given: tuple[Any, ...] = (params,) if columns_of is None else (params, columns_of())
    rewards.check_functions(*given)
    return True


def key_variables(params: Params) -> dict[str, str]:
    """By place: the environment variables that hold keys of endpoints."""
    found: dict[str, str] = {}
    for section, named in (("score", params.score.rewards), ("evaluate", params.evaluate.rewards)):
        for name, reward in named.items():
            variable = reward.arguments.get("key_variable")
            if isinstance(variable, str):
                found[f"{section}.rewards.{name}.arguments.key_variable"] = variable
    endpoint = params.judge.endpoint if params.judge is not None else None
    if endpoint is not None and endpoint.key_variable is not None:
        found["judge.endpoint.key_variable"] = endpoint.key_variable
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
