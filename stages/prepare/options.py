"""`prepare options`: check reward functions, keys, how many prompts are asked for, adapters and the reference's
positions, and write what stages depend on that read an option only if another says so -> sft_source.json,
sft_training.json, reward_models/index.json.

It runs before anything is sampled or trained, so that a wrong name is told at once. With `sft` null, say, no option of
the demonstrations is in the files, and changing one repeats nothing.
"""

from pathlib import Path
from typing import Any

from stages.common import paths
from stages.common.files import publish
from stages.common.fingerprint import code_hash
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.write_json import write_json
from stages.prepare.counts import check_counts
from stages.prepare.keys import check_keys
from stages.score.rewards import ROOM, check_functions, columns_of
from stages.sft.gold import judges


def sft_source(params: Params) -> dict[str, Any]:
    """What the demonstrations depend on, beside the seed and the code that makes them."""
    if params.sft is None:
        return {"source": "none"}
    rollout = params.rollout.model_dump(
        include={"temperature", "max_new_tokens", "stop_tokens", "batch_tokens", "processes"}
    )
    if params.sft.file is not None:
        options = params.sft.model_dump(include={"file", "sha256", "heldout"})
        turns = params.prepare.prompts.model_dump(include={"system", "few_shot", "chat"})
        return options | turns | {"stop_tokens": params.rollout.stop_tokens}
    rewards = {name: reward.model_dump(exclude={"cache"}) for name, reward in judges(params).items()}
    options = params.sft.model_dump(include={"best_of", "heldout"})
    return options | {"rollout": rollout, "rewards": rewards, "code": code_hash(ROOM)}


def sft_training(params: Params) -> dict[str, Any]:
    """What fine-tuning depends on, beside the demonstrations, the seed and the code."""
    if params.sft is None:
        return {"training": "none"}
    options = params.sft.model_dump(exclude={"file", "sha256", "best_of", "heldout"})
    return options | {"lora": params.policy.lora.model_dump() if params.sft.method == "lora" else None}


def publish_json(content: dict[str, Any], path: Path) -> None:
    with publish(path) as scratch:
        write_json(content, scratch)


def check_models(params: Params, journal: Journal) -> None:
    """What is to be built over the base or to be read by the reference; torch is imported only if something is."""
    if {params.policy.method, getattr(params.sft, "method", None)} & {"lora"} or params.reward_models or params.critic:
        from stages.prepare.adapters import check_adapters

        check_adapters(params, journal)
    if params.prepare.reference is not None:
        from stages.prepare.positions import check_reference_reads

        check_reference_reads(params)


def run(params: Params, journal: Journal) -> None:
    check_keys(params)
    check_functions(params, columns_of())
    check_counts(params)
    check_models(params, journal)
    used = {name: reward.model for name, reward in params.score.rewards.items() if reward.model is not None}
    publish_json(used, paths.reward_models_index())
    publish_json(sft_source(params), paths.SFT_SOURCE)
    publish_json(sft_training(params), paths.SFT_TRAINING)
    journal.say(f"{len(params.score.rewards)} rewards, {len(used)} of them by reward models")
