"""Dynamic sampling (DAPO, Yu et al. 2025, arXiv 2503.14476): go on until enough groups have a signal.

A group whose rewards are all equal has advantages of zero and only takes up a place. Further prompts are sampled, as
many as are still missing, until `prompts_per_iteration` groups have different rewards or `max_prompts` were sampled.
Groups without a signal stay in the table with `accepted` false: outside baseline and loss, but visible, and counted in
the history, since prompts that are always or never solved drop out of what is trained on.

Each iteration owns `max_prompts` places in the sequence of shuffled epochs, whether it needs them or not: which prompts
it takes does not depend on what earlier iterations needed.
"""

import polars as pl

from stages.common.params import DynamicSampling
from stages.common.tables import EQUAL
from stages.rollout.order import prompts_of
from stages.rollout.source import Source
from stages.score.model_reward import all_rewards


def sample_until_signal(source: Source, options: DynamicSampling) -> pl.DataFrame:
    """All rows sampled, in rounds."""
    wanted = source.params.rollout.prompts_per_iteration
    ids = source.prompts["prompt_id"].to_list()
    places = prompts_of(ids, source.params.seed, source.iteration, options.max_prompts)
    first: dict[str, int] = {}
    for place, prompt_id in places:
        first.setdefault(prompt_id, place)  # a prompt that the epochs bring twice is sampled once
    left = [(place, prompt_id) for prompt_id, place in first.items()]
    rounds: list[pl.DataFrame] = []
    accepted = 0
    while left and accepted < wanted:
        chosen, left = left[: wanted - accepted], left[wanted - accepted :]
        rows = mark_accepted(source.samples(chosen), source, options)
        accepted += rows.filter("accepted")["prompt_id"].n_unique()
        rounds.append(rows)
        source.journal.say(f"{accepted} of {wanted} groups have a signal, {len(left)} prompts are left in the budget")
    return pl.concat(rounds)


def mark_accepted(rows: pl.DataFrame, source: Source, options: DynamicSampling) -> pl.DataFrame:
    """Set `accepted` where the rewards of the row's group differ."""
    joined = rows.join(source.prompts, on="prompt_id", how="left", maintain_order="left")
    score = source.params.score
    rewards = all_rewards(score.rewards, joined, source.models, score.pack_tokens, max_failed=score.max_failed)
    reward = rewards["task_reward" if options.reward is None else f"reward/{options.reward}"]
    spread = (pl.col("_reward").max() - pl.col("_reward").min()).over("prompt_id")
    marked = rows.with_columns(_reward=reward).with_columns(accepted=(spread > EQUAL).fill_null(value=False))
    return marked.drop("_reward")
