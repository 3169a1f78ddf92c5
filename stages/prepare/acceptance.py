"""`prepare acceptance`: what decides which groups the rollout stage accepts -> acceptance.json; what the demonstrations
of supervised fine-tuning are made of and what training on them depends on -> sft_source.json, sft_training.json.

These files stand between params.yaml and stages that read an option only if another says so. Acceptance: without
dynamic sampling it takes no option, whatever the rewards are, and rollouts stay as they are when a reward changes; with
it the reward functions decide how many prompts are sampled, the file changes with them, and DVC samples again.
"""

import json
from pathlib import Path
from typing import Any

from stages.common import paths
from stages.common.files import publish
from stages.common.fingerprint import folder_hash
from stages.common.journal import Journal
from stages.common.params import Params
from stages.score.rewards import ROOM, check_functions


def acceptance(params: Params) -> dict[str, Any]:
    """What the acceptance of a group depends on."""
    options = params.rollout.dynamic_sampling
    if options is None:
        return {"accepted": "all groups"}
    return {
        "accepted": "groups with different rewards",
        "reward": options.reward or "task_reward",
        "rewards": {name: reward.model_dump() for name, reward in params.score.rewards.items()},
        "code": code(),
    }


def code() -> str:
    """The reward functions' own code."""
    return folder_hash(ROOM, lambda path: "__pycache__" not in path.parts)


def sft_source(params: Params) -> dict[str, Any]:
    """What the demonstrations depend on, beside the seed and the code that makes them."""
    if params.sft is None:
        return {"source": "none"}
    rollout = params.rollout.model_dump(include={"temperature", "max_new_tokens", "stop_tokens", "batch_sequences"})
    if params.sft.file is not None:
        options = params.sft.model_dump(include={"file", "sha256", "heldout"})
        return options | {"system": params.prepare.prompts.system, "stop_tokens": params.rollout.stop_tokens}
    rewards = {name: reward.model_dump() for name, reward in params.score.rewards.items() if reward.function}
    options = params.sft.model_dump(include={"best_of", "heldout"})
    return options | {"rollout": rollout, "rewards": rewards, "code": code()}


def sft_training(params: Params) -> dict[str, Any]:
    """What fine-tuning depends on, beside the demonstrations, the seed and the code."""
    if params.sft is None:
        return {"training": "none"}
    options = params.sft.model_dump(exclude={"file", "sha256", "best_of", "heldout"})
    return options | {"lora": params.policy.lora.model_dump() if params.sft.method == "lora" else None}


def write_json(content: dict[str, Any], path: Path) -> None:
    with publish(path) as scratch:
        scratch.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def run(params: Params, journal: Journal) -> None:
    check_functions(params)  # nothing has been sampled yet
    found = acceptance(params)
    used = {name: reward.model for name, reward in params.score.rewards.items() if reward.model is not None}
    with publish(paths.reward_models_index()) as scratch:
        scratch.write_text(json.dumps(used, sort_keys=True) + "\n", encoding="utf-8")
    write_json(found, paths.ACCEPTANCE)
    write_json(sft_source(params), paths.SFT_SOURCE)
    write_json(sft_training(params), paths.SFT_TRAINING)
    journal.say(str(found["accepted"]))
