"""Stage `prepare`: what a run starts from. Parts: `model` -> base/, `prompts` -> prompts.parquet, `policy` -> i0000,
`rewards` -> reward_models/index.json, `acceptance` -> acceptance.json.
"""

from stages.common.journal import Journal
from stages.common.params import Params
from stages.prepare import acceptance, model, policy, prompts, rewards


def run(part: str, params: Params, journal: Journal) -> None:
    if part == "model":
        model.run(params.prepare.model, journal)
    elif part == "prompts":
        prompts.run(params, journal)
    elif part == "policy":
        policy.run(params, journal)
    elif part == "rewards":
        rewards.run(params, journal)
    else:
        acceptance.run(params, journal)
