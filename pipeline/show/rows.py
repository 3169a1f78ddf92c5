"""Rows of an iteration: what was asked, said and scored, and why it counted."""

from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from pipeline.show.text import text
from pipeline.windows.present import check_tables
from stages.common import paths
from stages.common.errors import StageError
from stages.common.params_file import load_params
from stages.common.tables import ADVANTAGES, KEY, PROMPTS, ROLLOUTS, SCORES, read_table
from stages.compare.sides import folder_of, read_side
from stages.rescore.selection import OWN

BASELINES = {
    "reinforce": "no baseline",
    "moving_average": "average of the scores of past iterations",
    "batch_mean": "mean score of the batch",
    "remax": "score of the greedy completion of its prompt",
    "grpo": "mean score of its group",
    "dr_grpo": "mean score of its group",
    "reinforce_pp": "mean score that is taken off",
    "opo": "mean score of its group, weighted by length",
    "max_rl": "mean score of its group",
    "gae": "value before the first token",
}


def joined(name: str, tables: str = OWN) -> pl.DataFrame:
    """Everything known about each row of an iteration, by key; `tables`: the run's own, or a name of `rloo rescore`."""
    folder = folder_of(tables, name)
    scores = read_table(folder / "scores.parquet", SCORES, KEY)
    extra = [c for c in scores.columns if "/" in c] + ["kl", "logp_sum", "ref_logp_sum"]
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).select("prompt_id", "prompt")
    return (
        read_table(paths.rollouts(name), ROLLOUTS, KEY)
        .join(scores.select(*KEY, *extra), on=KEY, validate="1:1", maintain_order="left")
        .join(read_table(folder / "advantages.parquet", ADVANTAGES, KEY), on=KEY, validate="1:1", maintain_order="left")
        .join(prompts, on="prompt_id", validate="m:1", maintain_order="left")
    )


def rows(console: Console, name: str, prompt_id: str | None, count: int, tables: str = OWN) -> None:
    """Rows of an iteration: all of one prompt, or those with the highest and the lowest advantage."""
    check_tables(name)  # files of another plan may still lie there, made with other params
    if tables != OWN:
        read_side(tables, name, load_params())  # refused if it is not there, or was made of other rollouts
    frame = joined(name, tables)
    if prompt_id is not None:
        frame = frame.filter(pl.col("prompt_id") == prompt_id)
        if frame.is_empty():
            raise StageError(f"{paths.rollouts(name)} has no prompt {prompt_id!r}")
    elif frame.height > 2 * count:
        ordered = frame.sort("advantage", *KEY, nulls_last=True, descending=[True, False, False, False, False])
        ordered = ordered.filter("in_loss") if ordered["in_loss"].sum() >= 2 * count else ordered
        frame = pl.concat([ordered.head(count), ordered.tail(count)])
    for row in frame.to_dicts():
        _row(console, row)


def _baseline(row: dict[str, Any]) -> str:
    if row["baseline"] is None:
        return "none"
    siblings = f"mean of the scores of its {row['n_scorable'] - 1} scorable siblings"
    return f"{row['baseline']:z.3f}, {siblings if row['estimator'] == 'rloo' else BASELINES[row['estimator']]}"


def _advantage(row: dict[str, Any]) -> str:
    if row["advantage"] is None:
        return "none"
    whole, by_token = f"{text(row['advantage'])}, by {row['estimator']}", row["token_advantages"]
    if by_token is None:
        return whole
    what = "by token" if row["estimator"] == "gae" else "with the KL to go"
    return f"{whole}; {what} {by_token[0]:z.3f} at the first token, {by_token[-1]:z.3f} at the last"


def _score(row: dict[str, Any]) -> str:
    reward = f"{text(row['score'])} = task reward {text(row['task_reward'])}"
    return reward if row["score"] == row["task_reward"] else f"{reward} - beta * KL"


def _kl(row: dict[str, Any]) -> str:
    """Of a run with beta 0 there is none."""
    return "-" if row["kl"] is None else f"{row['kl']:z.4f} = {row['logp_sum']:z.4f} - {row['ref_logp_sum']:z.4f}"


def _drawn(row: dict[str, Any]) -> str:
    return "greedy" if row["seed"] is None else f"seed {row['seed']}"


def _row(console: Console, row: dict[str, Any]) -> None:
    table = Table(
        show_header=False,
        title=f"{row['prompt_id']} {row['kind']} {row['sample']}",
        title_justify="left",
        width=min(100, console.width),
    )
    table.add_column(style="bold", width=12)
    table.add_column(overflow="fold")
    facts = {
        "prompt": row["prompt"],
        "completion": row["completion"],
        "ended": f"{row['finish_reason']}, {row['length']} tokens, {_drawn(row)}",
        "rewards": ", ".join(
            f"{k.split('/')[1]} {text(v)} ({row['status/' + k.split('/')[1]]})"
            for k, v in row.items()
            if k.startswith("reward/")
        ),
        "KL": _kl(row),
        "score": _score(row),
        "baseline": _baseline(row),
        "group": f"{row['group_kind']}, {row['group_size']} rows",
        "advantage": _advantage(row),
        "in loss": f"{'yes' if row['in_loss'] else 'no'}: {row['reason']}",
    }
    for key, value in facts.items():
        table.add_row(key, value)
    console.print(table, markup=False)
