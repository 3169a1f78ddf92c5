"""Answers of the reference to training prompts: where a reward model's scores lie before the policy changes.

They are the same answers for every reward model, so that distributions can be compared.
"""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.journal import Journal
from stages.common.params import Params, ParamsError
from stages.common.policy import Models, load_tokenizer
from stages.common.seeds import seed_of
from stages.common.tables import PROMPTS, read_table
from stages.rollout.completions import completion_columns, settings_of
from stages.rollout.sampler import Request, sample

WHAT = "reward_reference"  # what these seeds are for


def reference_requests(prompts: pl.DataFrame, count: int, seed: int) -> list[tuple[dict[str, Any], list[int]]]:
    """`count` (prompt, seeds): over shuffled prompts, each once before any is there twice."""
    rows = sorted(prompts.to_dicts(), key=lambda row: (seed_of(seed, WHAT, row["prompt_id"]), row["prompt_id"]))
    seeds: dict[str, list[int]] = {}
    for number in range(count):
        prompt_id = rows[number % len(rows)]["prompt_id"]
        seeds.setdefault(prompt_id, []).append(seed_of(seed, WHAT, prompt_id, number // len(rows)))
    return [(row, seeds[row["prompt_id"]]) for row in rows if row["prompt_id"] in seeds]


def reference_answers(count: int, params: Params, models: Models, journal: Journal) -> pl.DataFrame:
    """`count` rows with the prompts' columns and the completions', sampled as rollouts are."""
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(split="train").select(list(PROMPTS))
    if prompts.is_empty():
        raise ParamsError(f"{paths.PROMPTS} has no training prompts; see prepare.prompts in params.yaml")
    tokenizer = load_tokenizer()
    wanted, finished = reference_requests(prompts, count, params.seed), 0

    def progress(more: int) -> None:
        nonlocal finished
        finished += more
        journal.progress(finished, count, "answers of the reference ended")

    settings = settings_of(params, tokenizer, params.rollout.temperature)
    requests = [Request(row["prompt_ids"], seeds) for row, seeds in wanted]
    with models.reference() as reference:
        groups = sample(reference, requests, settings, progress)
    rows = [
        row | completion_columns(tokenizer, one)
        for (row, _), group in zip(wanted, groups, strict=True)
        for one in group
    ]
    return pl.DataFrame(rows, schema_overrides=PROMPTS)
