"""How many prompts options ask for, against how many there are: told before anything is sampled."""

import polars as pl

from stages.common import paths
from stages.common.params import Params, ParamsError
from stages.common.tables import PROMPTS, read_table


def wanted(params: Params) -> dict[str, int]:
    """{option: training prompts that it takes, each once}."""
    found: dict[str, int] = {}
    if params.rollout.dynamic_sampling is not None:
        found["rollout.dynamic_sampling.max_prompts"] = params.rollout.dynamic_sampling.max_prompts
    if params.sft is not None and params.sft.best_of is not None:
        found["sft.best_of.prompts"] = params.sft.best_of.prompts
    if params.critic is not None and params.critic.pretraining is not None:
        found["critic.pretraining.prompts"] = params.critic.pretraining.prompts
    for name, model in params.reward_models.items():
        if model.preferences is not None and model.preferences.sampled is not None:
            found[f"reward_models.{name}.preferences.sampled.prompts"] = model.preferences.sampled.prompts
    return found


def check_counts(params: Params) -> None:
    """A ParamsError names every option that asks for more training prompts than there are."""
    asked = wanted(params)
    if not asked:
        return
    there = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(pl.col("split") == "train").height
    over = [f"params.yaml: {option} = {count}" for option, count in asked.items() if count > there]
    if over:
        raise ParamsError(
            f"{'; '.join(over)}: a prompt is taken once, and {paths.PROMPTS} has {there} to train on; ask for fewer"
        )
