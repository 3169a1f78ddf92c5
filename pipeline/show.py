"""`rloo show`: the tables of a run as tables for people."""

import json
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from pipeline.plan import Plan
from stages.common import paths
from stages.common.errors import StageError
from stages.common.params_file import load_params
from stages.common.seeds import seed_of
from stages.common.tables import ADVANTAGES, GENERATIONS, KEY, PROMPTS, ROLLOUTS, SCORES, read_table
from stages.evaluate.bootstrap import bootstrap_interval

HISTORY_COLUMNS = {
    "iteration": "iteration",
    "reward": "reward",
    "reward_std": "std in group",
    "groups/mixed": "mixed groups",
    "kl": "KL",
    "entropy": "entropy",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "cut off",
    "grad_norm": "grad norm",
    "eval/reward": "held-out",
}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def history(console: Console) -> None:
    """The training curve, one line per iteration."""
    if not paths.HISTORY.exists():
        raise StageError(f"{paths.HISTORY} does not exist yet; `rloo train` or `dvc repro` makes it")
    frame = pl.read_parquet(paths.HISTORY)
    table = Table(title=f"{paths.HISTORY}: {frame.width} columns, these are some")
    shown = {column: title for column, title in HISTORY_COLUMNS.items() if column in frame.columns}
    for title in shown.values():
        table.add_column(title, justify="right")
    for row in frame.select(list(shown)).rows():
        table.add_row(*map(_text, row))
    console.print(table)


def read_evaluation(name: str) -> dict[str, Any]:
    path = paths.evaluation(name)
    if not path.exists():
        raise StageError(f"{path} does not exist: {name} is not evaluated (yet); see `evaluated` in pipeline/plan.yaml")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def paired_gain(before: str, after: str) -> tuple[float, float, float]:
    """Mean difference of the task reward per held-out prompt, and its bootstrap interval."""
    params = load_params()
    tables = [
        read_table(paths.generations(name), GENERATIONS, KEY)
        .group_by("prompt_id", maintain_order=True)
        .agg(pl.col("task_reward").mean())
        for name in (before, after)
    ]
    both = tables[0].join(tables[1], on="prompt_id", suffix="_after").drop_nulls().sort("prompt_id")
    gain_P: np.ndarray = (both["task_reward_after"] - both["task_reward"]).to_numpy()
    settings = params.evaluate
    low, high = bootstrap_interval(gain_P, settings.confidence, settings.resamples, seed_of(params.seed, "gain"))
    return float(gain_P.mean()), low, high


def comparison(console: Console, before: str, after: str) -> None:
    """Held-out reward before and after, in all and part by part."""
    first, last = read_evaluation(before), read_evaluation(after)
    table = Table(title=f"Held-out reward, {first['n_prompts']} prompts that training never saw")
    table.add_column("")
    for title in ("answers", before, after, "change"):
        table.add_column(title, justify="right")
    parts = [key.split("/")[1] for key in first if key.startswith("parts/") and key.endswith("/mean")]
    for part in sorted(parts, key=lambda name: (-first[f"parts/{name}/n"], name)):
        old, new = first[f"parts/{part}/mean"], last.get(f"parts/{part}/mean", float("nan"))
        table.add_row(part, str(first[f"parts/{part}/n"]), f"{old:.2f}", f"{new:.2f}", f"{new - old:+.2f}")
    table.add_section()
    for title, key in (("mean length", "completions/mean_length"), ("cut off", "completions/clipped_ratio")):
        table.add_row(title, "", f"{first[key]:.2f}", f"{last[key]:.2f}", f"{last[key] - first[key]:+.2f}")
    table.add_row(
        "distinct bigrams",
        "",
        f"{first['distinct_2']:.2f}",
        f"{last['distinct_2']:.2f}",
        f"{last['distinct_2'] - first['distinct_2']:+.2f}",
    )
    table.add_section()
    gain, low, high = paired_gain(before, after)
    table.add_row(
        "reward",
        str(first["n_prompts"]),
        _interval(first),
        _interval(last),
        f"{gain:+.3f} [{low:+.3f}, {high:+.3f}]",
        style="bold",
    )
    console.print(table)
    console.print(
        f"Intervals: {first['confidence']:.0%} bootstrap over prompts; the change is paired by prompt.", markup=False
    )


def _interval(found: dict[str, Any]) -> str:
    return f"{found['reward']:.3f} [{found['reward_low']:.3f}, {found['reward_high']:.3f}]"


def files(console: Console, plan: Plan) -> None:
    """Where everything is."""
    last = plan.last
    rows = [
        (paths.policy(last), "the trained policy (`rloo export` writes it as one model folder)"),
        (paths.iteration(last), "rollouts, scores, advantages, optimizer steps, evaluation, as Parquet and JSON"),
        (paths.HISTORY_CSV, "one row per iteration; also as .parquet; `dvc plots show` draws it"),
        (paths.SECONDS_CSV, "seconds per stage"),
    ]
    for path, what in rows:
        console.print(f"  {path!s:32} {what}", markup=False, highlight=False)


def joined(name: str) -> pl.DataFrame:
    """Everything known about each row of an iteration, by key."""
    scores = read_table(paths.scores(name), SCORES, KEY)
    extra = [c for c in scores.columns if "/" in c] + ["kl", "logp_sum", "ref_logp_sum"]
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).select("prompt_id", "prompt")
    return (
        read_table(paths.rollouts(name), ROLLOUTS, KEY)
        .join(scores.select(*KEY, *extra), on=KEY, validate="1:1", maintain_order="left")
        .join(read_table(paths.advantages(name), ADVANTAGES, KEY), on=KEY, validate="1:1", maintain_order="left")
        .join(prompts, on="prompt_id", validate="m:1", maintain_order="left")
    )


def rows(console: Console, name: str, prompt_id: str | None, count: int) -> None:
    """Rows of an iteration: all of one prompt, or those with the highest and the lowest advantage."""
    frame = joined(name)
    if prompt_id is not None:
        frame = frame.filter(pl.col("prompt_id") == prompt_id)
        if frame.is_empty():
            raise StageError(f"{paths.rollouts(name)} has no prompt {prompt_id!r}")
    elif frame.height > 2 * count:
        ordered = frame.sort("advantage", *KEY, nulls_last=False, descending=[True, False, False, False, False])
        frame = pl.concat([ordered.head(count), ordered.tail(count)])
    for row in frame.to_dicts():
        _row(console, row)


def _baseline(row: dict[str, Any]) -> str:
    if row["baseline"] is None:
        return "none"
    return f"{row['baseline']:.3f}, mean of the scores of its {row['n_scorable'] - 1} scorable siblings"


def _row(console: Console, row: dict[str, Any]) -> None:
    table = Table(
        show_header=False, title=f"{row['prompt_id']} sample {row['sample']}", title_justify="left", width=100
    )
    table.add_column(style="bold", width=12)
    table.add_column(overflow="fold")
    facts = {
        "prompt": row["prompt"],
        "completion": row["completion"],
        "ended": f"{row['finish_reason']}, {row['length']} tokens, seed {row['seed']}",
        "rewards": ", ".join(
            f"{k.split('/')[1]} {_text(v)} ({row['status/' + k.split('/')[1]]})"
            for k, v in row.items()
            if k.startswith("reward/")
        ),
        "KL": f"{row['kl']:.4f} = {row['logp_sum']:.4f} - {row['ref_logp_sum']:.4f}",
        "score": f"{_text(row['score'])} = task reward {_text(row['task_reward'])} - beta * KL",
        "baseline": _baseline(row),
        "group": f"{row['group_kind']}, {row['group_size']} rows",
        "advantage": f"{_text(row['advantage'])}",
        "in loss": f"{'yes' if row['in_loss'] else 'no'}: {row['reason']}",
    }
    for key, value in facts.items():
        table.add_row(key, value)
    console.print(table, markup=False)
