"""Demonstrations by the base itself: of several answers to a prompt the one with the highest task reward.

Training on them is one round of rejection sampling (RAFT, arXiv 2304.06767), before any policy gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from stages.common.params import Params
from stages.common.paths import BASE
from stages.common.seeds import seed_of
from stages.common.tables import DEMONSTRATIONS, EQUAL
from stages.rollout.completions import completion_columns, settings_of
from stages.rollout.sampler import Request, sample
from stages.score.rewards import reward_columns, reward_inputs
from stages.sft.gold import judges, named_by


@dataclass(frozen=True)
class Picked:
    """The demonstrations, and how many prompts gave none."""

    rows: pl.DataFrame
    unscorable: int  # no answer could be scored
    unended: int  # some could, but none of those came to an end


def chosen_prompts(prompts: pl.DataFrame, count: int, run_seed: int) -> pl.DataFrame:
    """`count` prompts in the order of a hash of seed and prompt id."""
    order = [seed_of(run_seed, "best of", prompt_id) for prompt_id in prompts["prompt_id"]]
    return prompts.with_columns(_order=pl.Series(order, dtype=pl.UInt64)).sort("_order").drop("_order").head(count)


def sample_answers(
    model: Any, tokenizer: Any, prompts: pl.DataFrame, params: Params, samples: int, progress: Callable[[int], None]
) -> pl.DataFrame:
    """`samples` answers to each prompt as rows, with the prompt's own columns, which reward functions may ask for."""
    ids = prompts["prompt_id"].to_list()
    seeds = [[seed_of(params.seed, "best of", one, number) for number in range(samples)] for one in ids]
    requests = [Request(tokens, group) for tokens, group in zip(prompts["prompt_ids"].to_list(), seeds, strict=True)]
    settings = settings_of(params, tokenizer, params.rollout.temperature, BASE)
    groups = sample(model, requests, settings, progress)
    rows = [
        {"iteration": 0, "prompt_id": prompt_id, "sample": number} | completion_columns(tokenizer, one)
        for prompt_id, group in zip(ids, groups, strict=True)
        for number, one in enumerate(group)
    ]
    return pl.DataFrame(rows).join(prompts, on="prompt_id", how="left", maintain_order="left")


def scored(rows: pl.DataFrame, params: Params) -> pl.DataFrame:
    """The answers with `task_reward`."""
    found = reward_columns(
        judges(params), reward_inputs(rows), max_failed=params.score.max_failed, named_by=named_by(params)
    )
    return rows.with_columns(found["task_reward"])


def pick(rows: pl.DataFrame) -> Picked:
    """Of each prompt the best answer that ended; of equal ones the first sampled."""
    scorable = rows.filter(pl.col("task_reward").is_not_null())
    ended = scorable.filter(pl.col("finish_reason") == "stop")
    best = ended.filter(pl.col("task_reward") >= pl.col("task_reward").max().over("prompt_id") - EQUAL)
    first = best.sort("prompt_id", "sample").unique("prompt_id", keep="first", maintain_order=True)
    with_score = scorable["prompt_id"].n_unique()
    return Picked(
        first.with_columns(split=pl.lit("train")).select(list(DEMONSTRATIONS)),
        rows["prompt_id"].n_unique() - with_score,
        with_score - first.height,
    )
