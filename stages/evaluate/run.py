"""Stage `evaluate`: a policy -> eval.json and generations.parquet, on the held-out prompts.

The policy is that of an iteration or of `offline`. A sample's seed does not depend on which, so that two policies are
compared on the same random numbers.
"""

import json
from functools import partial
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Params, ParamsError
from stages.common.policy import Models, load_tokenizer
from stages.common.seeds import seed_of
from stages.common.tables import GENERATIONS, KEY, PROMPTS, conform, read_table, reward_schema, write_table
from stages.evaluate.bootstrap import bootstrap_interval
from stages.evaluate.diversity import distinct_n
from stages.rollout.completions import completion_columns, settings_of
from stages.rollout.sampler import Request, sample
from stages.score.calling.function import of_reward
from stages.score.calling.inspection import parts_of
from stages.score.calling.rows import call_rows
from stages.score.kl import add_kl
from stages.score.model_reward import all_rewards
from stages.score.rewards import check_functions, columns_of, reward_inputs
from stages.score.run import add_reference, no_reference


def generate(name: str, prompts: pl.DataFrame, params: Params, models: Models, journal: Journal) -> pl.DataFrame:
    """Completions of the held-out prompts, one row each, with the prompts' columns."""
    count, iteration = params.evaluate.samples_per_prompt, paths.iteration_column(name)
    ids = prompts["prompt_id"].to_list()
    requests = [
        Request(prompt_ids, [seed_of(params.seed, "evaluate", prompt_id, s) for s in range(count)])
        for prompt_id, prompt_ids in prompts.select("prompt_id", "prompt_ids").iter_rows()
    ]
    tokenizer, finished, total = load_tokenizer(), 0, len(ids) * count

    def progress(more: int) -> None:
        nonlocal finished
        finished += more
        journal.progress(finished, total, "completions ended")

    settings = settings_of(params, tokenizer, params.evaluate.temperature)
    groups = sample(models.policy(paths.policy(name)), requests, settings, progress)
    rows = [
        {"iteration": iteration, "prompt_id": prompt_id, "sample": number, "kind": "sample"}
        | completion_columns(tokenizer, one)
        for prompt_id, group in zip(ids, groups, strict=True)
        for number, one in enumerate(group)
    ]
    return pl.DataFrame(rows).join(prompts, on="prompt_id", validate="m:1", maintain_order="left")


def rewards_of(rows: pl.DataFrame, models: Models, params: Params) -> pl.DataFrame:
    """The rewards that are trained on, with `task_reward`; and beside them those that are only measured."""
    max_tokens, max_failed = params.score.pack_tokens, params.score.max_failed
    trained = all_rewards(params.score.rewards, rows, models, max_tokens, max_failed=max_failed)
    if not params.evaluate.rewards:
        return trained
    named_by = partial(of_reward, section="evaluate.rewards")
    measured = all_rewards(params.evaluate.rewards, rows, models, max_tokens, max_failed=max_failed, named_by=named_by)
    return trained.hstack(measured.drop("task_reward"))


def part_column(rows: pl.DataFrame, params: Params) -> pl.Series:
    """What each reward is made of, as the function `evaluate.parts` tells it; empty lists if none is named, and for
    rows of which it tells nothing.
    """
    spec = params.evaluate.parts
    told = call_rows(parts_of(spec), reward_inputs(rows), params.score.max_failed) if spec is not None else []
    found: list[dict[str, float]] = [parts or {} for parts, _, _ in told] or [{} for _ in range(rows.height)]
    items = [[{"name": name, "value": value} for name, value in row.items()] for row in found]
    return pl.Series("parts", items, dtype=GENERATIONS["parts"])


def summarise(table: pl.DataFrame, params: Params) -> dict[str, Any]:
    """The contents of eval.json; `reward` is the mean over prompts of the mean over their scorable samples."""
    per_prompt = (
        table.group_by("prompt_id", maintain_order=True)
        .agg(pl.col("task_reward").mean())
        .sort("prompt_id")["task_reward"]
        .drop_nulls()
    )
    if per_prompt.is_empty():
        raise ParamsError("evaluate: no held-out completion could be scored; see status/* in the generations")
    settings = params.evaluate
    low, high = bootstrap_interval(
        per_prompt.to_numpy(), settings.confidence, settings.resamples, seed_of(params.seed, "bootstrap")
    )
    parts = table.select(pl.col("parts").explode().struct.unnest()).drop_nulls()
    by_part = (
        parts.group_by("name", maintain_order=True)
        .agg(pl.col("value").mean().alias("mean"), pl.len().alias("n"))
        .sort("name")
    )
    return {
        "reward": per_prompt.mean(),
        "reward_low": low,
        "reward_high": high,
        "confidence": settings.confidence,
        **{f"{name.replace('reward/', 'rewards/')}/mean": table[name].mean() for name in _reward_columns(table)},
        **{f"parts/{name}/mean": mean for name, mean, _ in by_part.rows()},
        **{f"parts/{name}/n": n for name, _, n in by_part.rows()},
        "n_prompts": table["prompt_id"].n_unique(),
        "n_completions": table.height,
        "n_unscorable": table["task_reward"].null_count(),
        "completions/mean_length": table["length"].mean(),
        "completions/clipped_ratio": (table["finish_reason"] == "length").mean(),
        "distinct_1": distinct_n(table["completion"].to_list(), 1),
        "distinct_2": distinct_n(table["completion"].to_list(), 2),
        "completions/std_length": table["length"].cast(pl.Float64).std(),
        "entropy": table["entropy"].mean(),
        "kl": table["kl"].mean(),
    }


def _reward_columns(table: pl.DataFrame) -> list[str]:
    return [name for name in table.columns if name.startswith("reward/")]


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(pl.col("split") == "heldout")
    check_functions(params, columns_of())
    rows = generate(name, prompts, params, models, journal)
    temperature = params.evaluate.temperature or 1.0  # greedy answers have log-probs at temperature 1
    if params.evaluate.measures_kl(params.score.kl.beta):
        rows = add_reference(rows, models, temperature, params.score.pack_tokens, journal)
    else:
        rows = no_reference(rows)
    referenced = add_kl(rows)
    scored = referenced.hstack(rewards_of(rows, models, params))
    schema = {**GENERATIONS, **reward_schema([*params.score.rewards, *params.evaluate.rewards])}
    table = scored.with_columns(part_column(rows, params))
    summary = summarise(conform(table, schema, "generations"), params)
    write_table(table.select(list(schema)), schema, KEY, paths.generations(name))
    with publish(paths.evaluation(name)) as scratch:
        scratch.write_text(json.dumps(summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    journal.say(
        f"held-out reward {summary['reward']:.3f} [{summary['reward_low']:.3f}, {summary['reward_high']:.3f}] "
        f"on {summary['n_prompts']} prompts"
    )
