"""Stage `prepare`: what a run starts from. Parts: `model` -> base/, `prompts` -> prompts.parquet, `policy` -> i0000,
`options` and `acceptance` -> the files that stand between options and stages.
"""

from stages.common.journal import Journal
from stages.common.params import Params
from stages.prepare import acceptance, model, options, policy, prompts


def run(part: str, params: Params, journal: Journal) -> None:
    if part == "model":
        model.run(params.prepare.model, journal)
    elif part == "prompts":
        prompts.run(params, journal)
    elif part == "policy":
        policy.run(params, journal)
    elif part == "options":
        options.run(params, journal)
    else:
        acceptance.run(params, journal)
