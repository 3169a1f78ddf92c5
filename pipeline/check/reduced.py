"""The params of the dry run: as they are, but for one small step on few prompts, from what is there already."""

import os
import re
from pathlib import Path
from typing import Any

from stages.common.params import Params, Reward
from stages.common.params_file import parse_params

A_NAME = re.compile(r"[^./]")


def rooted(params: Params, folder: Path) -> Params:
    """The same, with paths that are right from inside `folder`, where the dry run works."""
    return Params.model_validate(_rooted(params.model_dump(), Path.cwd(), folder))


def reduced(params: Params, prompts: int) -> Params:
    """K, lengths, temperature, estimator, objective, KL and critic stay.

    Any share of failed rows goes through: the check itself says what failed, and whether the run would stop.
    """
    update: dict[str, Any] = {
        "rollout": {"prompts_per_iteration": prompts, "dynamic_sampling": None},
        "update": {"epochs": 1, "minibatches": 1},
        "score": {"max_failed": 1.0},
    }
    if params.critic is not None:
        update["critic"] = {"epochs": 1, "minibatches": 1, "pretraining": None}
    content = params.model_dump()
    for section, options in update.items():
        content[section] |= options
    return Params.model_validate(content)


def with_rewards(params: Params, rewards: dict[str, Reward]) -> Params:
    """The same with some rewards only. What names one of the others is switched off."""
    content = params.model_dump(exclude_unset=True)
    content["score"]["rewards"] = {name: one.model_dump(exclude_unset=True) for name, one in rewards.items()}
    advantage = content.setdefault("advantage", {})
    if advantage.get("outcome_reward") not in rewards:
        advantage["outcome_reward"] = None
    verify = content["prepare"]["prompts"].get("verify")
    if verify and verify["reward"] not in rewards:
        content["prepare"]["prompts"]["verify"] = None
    return parse_params(content, "params.yaml, of the dry run")


def _rooted(value: Any, project: Path, folder: Path) -> Any:
    """Relative paths that mean another file from inside `folder` as absolute ones."""
    if isinstance(value, dict):
        return {key: _rooted(one, project, folder) for key, one in value.items()}
    if isinstance(value, list):
        return [_rooted(one, project, folder) for one in value]
    if isinstance(value, str) and _means_another(value, project, folder):
        return str(project / value)
    return value


def _means_another(value: str, project: Path, folder: Path) -> bool:
    """Whether the text is a path to something that is not found at the same place in the folder."""
    stem, is_code, _ = value.partition(".py:")  # file.py:function
    path = stem + ".py" if is_code else value
    if "/" not in path or "\n" in path or os.path.isabs(path) or not A_NAME.search(path):
        return False
    there, here = os.path.join(project, path), os.path.join(folder, path)
    return os.path.exists(there) and not (os.path.exists(here) and os.path.samefile(there, here))
