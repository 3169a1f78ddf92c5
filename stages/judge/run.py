"""Stage `judge`: generations of a policy (iteration or `offline`) and of the initial one -> judged.parquet, judge.json.

Both answered the same held-out prompts with the same random numbers; a pair is the two answers to one prompt and
sample.
"""

import json
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.errors import StageError, TransientError
from stages.common.files import publish
from stages.common.gate import refuse
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.policy import Models
from stages.common.post import tells_of_lost_server
from stages.common.tables import GENERATIONS, JUDGED, KEY, PROMPTS, read_table, write_table
from stages.judge.pairs import judge_by_endpoint, judge_by_scores
from stages.judge.summary import summarise

PAIR = ("iteration", "prompt_id", "sample")
OTHER = ("completion", "completion_ids", "finish_reason", "length")


def pairs_of(name: str) -> pl.DataFrame:
    """The answers of `name` with the prompts' columns, and beside them `other_*` of the initial policy."""
    mine, first = (read_table(paths.generations(n), GENERATIONS, KEY) for n in (name, paths.INITIAL))
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",))
    others = first.select("prompt_id", "sample", *(pl.col(c).alias(f"other_{c}") for c in OTHER))
    kept = mine.select(*KEY, *OTHER)
    rows = kept.join(others, on=("prompt_id", "sample"), how="left", validate="1:1", maintain_order="left")
    refuse(rows, pl.col("other_length").is_null(), "generations", f"{paths.INITIAL} answered the same prompts")
    return rows.join(prompts, on="prompt_id", how="left", validate="m:1", maintain_order="left")


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    metrics: dict[str, Any] = {}
    if params.judge is None:
        table = pl.DataFrame(schema=JUDGED)
    else:
        judge = judge_by_scores if params.judge.endpoint is None else judge_by_endpoint
        table = judge(pairs_of(name), params, models, journal)
        if table["outcome"].null_count() == table.height:
            reasons = table["message"].drop_nulls().to_list()
            lost = all(map(tells_of_lost_server, reasons))
            raise (TransientError if lost else StageError)(
                f"judge: no pair has an outcome; the first reason: {reasons[0]}"
            )
        metrics = summarise(table, params)
        journal.say(
            f"win-rate {metrics['win_rate']:.3f} [{metrics['win_rate_low']:.3f}, {metrics['win_rate_high']:.3f}] "
            f"against {paths.INITIAL}, {metrics['n_without_outcome']} pairs without an outcome"
        )
    write_table(table, JUDGED, PAIR, paths.judged(name))
    with publish(paths.verdict(name)) as scratch:
        scratch.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
