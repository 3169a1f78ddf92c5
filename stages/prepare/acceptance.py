"""`prepare acceptance`: what decides which groups the rollout stage accepts -> acceptance.json.

Without dynamic sampling that is nothing, whatever the rewards are, and rollouts stay as they are when a reward changes.
With it the rewards decide how many prompts are sampled: the file then changes with the functions and the contents of
the reward models, and DVC samples again.
"""

from typing import Any

from stages.common import paths
from stages.common.checked import check_folder
from stages.common.files import publish
from stages.common.fingerprint import code_hash
from stages.common.journal import Journal
from stages.common.params import Params, Reward
from stages.common.write_json import write_json
from stages.prepare.functions import of_rewards
from stages.score.rewards import ROOM


def deciding(rewards: dict[str, Reward], name: str | None) -> dict[str, Reward]:
    """The rewards whose values accept or reject a group: the one that is named, or all, as parts of the task reward."""
    return rewards if name is None else {name: rewards[name]}


def of_reward(reward: Reward, *, weighed: bool) -> dict[str, Any]:
    """Its options, without those that change no value: whether results are kept, and the weight of one that is
    looked at by itself.
    """
    return reward.model_dump(mode="json", exclude={"cache"} if weighed else {"cache", "weight"})


def acceptance(params: Params) -> dict[str, Any]:
    """What the acceptance of a group depends on."""
    options = params.rollout.dynamic_sampling
    if options is None:
        return {"accepted": "all groups"}
    rewards = deciding(params.score.rewards, options.reward)
    used = {reward.model for reward in rewards.values() if reward.model is not None}
    return {
        "accepted": "groups with different rewards",
        "reward": options.reward or "task_reward",
        "rewards": {name: of_reward(reward, weighed=options.reward is None) for name, reward in rewards.items()},
        "models": {name: check_folder(paths.reward_model(name)) for name in sorted(used)},
        "pack_tokens": params.score.pack_tokens if used else None,
        "code": code_hash(ROOM),
        "functions": of_rewards(rewards, "score.rewards"),
    }


def run(params: Params, journal: Journal) -> None:
    found = acceptance(params)
    with publish(paths.ACCEPTANCE) as scratch:
        write_json(found, scratch)
    journal.say(str(found["accepted"]))
