"""`prepare acceptance`: what decides which groups the rollout stage accepts -> acceptance.json.

Without dynamic sampling that is nothing, whatever the rewards are, and rollouts stay as they are when a reward changes.
With it the rewards decide how many prompts are sampled: the file then changes with the functions and the contents of
the reward models, and DVC samples again.
"""

from typing import Any

from stages.common import paths
from stages.common.fingerprint import code_hash, folder_hash
from stages.common.journal import Journal
from stages.common.params import Params
from stages.prepare.options import publish_json
from stages.prepare.sources import of_rewards
from stages.score.rewards import ROOM


def acceptance(params: Params) -> dict[str, Any]:
    """What the acceptance of a group depends on."""
    options = params.rollout.dynamic_sampling
    if options is None:
        return {"accepted": "all groups"}
    used = {reward.model for reward in params.score.rewards.values() if reward.model is not None}
    return {
        "accepted": "groups with different rewards",
        "reward": options.reward or "task_reward",
        "rewards": {name: reward.model_dump() for name, reward in params.score.rewards.items()},
        "models": {name: folder_hash(paths.reward_model(name)) for name in sorted(used)},
        "pack_tokens": params.score.pack_tokens if used else None,
        "code": code_hash(ROOM),
        "functions": of_rewards(params.score.rewards, "score.rewards"),
    }


def run(params: Params, journal: Journal) -> None:
    found = acceptance(params)
    publish_json(found, paths.ACCEPTANCE)
    journal.say(str(found["accepted"]))
