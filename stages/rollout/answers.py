"""Answers outside the iterations: samples of a model to some prompts, as rows of a table with the prompts' columns."""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.errors import StageError
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.seeds import seed_of
from stages.rollout.completions import completion_columns, settings_of
from stages.rollout.sampler import Request, sample


def sampled_answers(
    model: Any,
    tokenizer: Any,
    prompts: pl.DataFrame,
    count: int,
    purpose: tuple[object, ...],
    params: Params,
    journal: Journal,
) -> pl.DataFrame:
    """`count` answers to each prompt, in order, at the rollouts' settings; a seed is a hash of (run seed, `purpose`,
    prompt id, sample), so that no two purposes share random numbers.
    """
    keys = [
        {"prompt_id": prompt_id, "sample": n, "seed": seed_of(params.seed, *purpose, prompt_id, n)}
        for prompt_id in prompts["prompt_id"]
        for n in range(count)
    ]
    seeds = [key["seed"] for key in keys]
    of_prompts = enumerate(prompts["prompt_ids"].to_list())
    requests = [Request(ids, seeds[place * count : (place + 1) * count]) for place, ids in of_prompts]
    finished = 0

    def progress(more: int) -> None:
        nonlocal finished
        finished += more
        journal.progress(finished, len(keys), "answers ended")

    groups = sample(model, requests, settings_of(params, tokenizer, params.rollout.temperature), progress)
    found = [one for group in groups for one in group]
    rows = [key | completion_columns(tokenizer, one) for key, one in zip(keys, found, strict=True)]
    frame = pl.DataFrame(rows, schema_overrides={"seed": pl.UInt64})
    shared = sorted(set(frame.columns) & set(prompts.columns) - {"prompt_id"})
    if shared:
        raise StageError(f"{paths.PROMPTS}: columns {shared} have names that answers use; rename them in the dataset")
    return frame.join(prompts, on="prompt_id", how="left", maintain_order="left")
