"""`prepare rewards`: check the reward functions, and write which reward models the scores use -> index.json.

It runs before anything is sampled or trained, so that a wrong name is told at once.
"""

import json

from stages.common import paths
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Params
from stages.score.rewards import check_functions


def run(params: Params, journal: Journal) -> None:
    check_functions(params)
    used = {name: reward.model for name, reward in params.score.rewards.items() if reward.model is not None}
    with publish(paths.reward_models_index()) as scratch:
        scratch.write_text(json.dumps(used, sort_keys=True) + "\n", encoding="utf-8")
    journal.say(f"{len(params.score.rewards)} rewards, {len(used)} of them by reward models")
