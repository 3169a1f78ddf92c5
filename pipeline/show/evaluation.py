"""Held-out reward of two policies, part by part."""

import json
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from pipeline.names import check_evaluated
from stages.common import paths
from stages.common.checked import checked
from stages.common.errors import StageError
from stages.common.params_file import load_params
from stages.common.seeds import seed_of
from stages.common.tables import GENERATIONS, KEY, read_table
from stages.evaluate.bootstrap import bootstrap_interval


def read_evaluation(name: str) -> dict[str, Any]:
    path = paths.evaluation(name)
    if not path.exists():
        raise StageError(f"{path} does not exist: {name} is not evaluated yet; `rloo train` does that")
    found: dict[str, Any] = json.loads(checked(path).read_text(encoding="utf-8"))
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
    for name in (before, after):
        check_evaluated(name)
    first, last = read_evaluation(before), read_evaluation(after)
    table = Table(title=f"Held-out reward, {first['n_prompts']} prompts that training never saw")
    table.add_column("")
    for title in ("answers", before, after, "change"):
        table.add_column(title, justify="right")
    parts = [key.split("/")[1] for key in first if key.startswith("parts/") and key.endswith("/mean")]
    for part in sorted(parts, key=lambda name: (-first[f"parts/{name}/n"], name)):
        old, new = first[f"parts/{part}/mean"], last.get(f"parts/{part}/mean", float("nan"))
        table.add_row(part, str(first[f"parts/{part}/n"]), f"{old:z.2f}", f"{new:z.2f}", f"{new - old:+z.2f}")
    table.add_section()
    for title, key in (("mean length", "completions/mean_length"), ("cut off", "completions/clipped_ratio")):
        table.add_row(title, "", f"{first[key]:z.2f}", f"{last[key]:z.2f}", f"{last[key] - first[key]:+z.2f}")
    table.add_row(
        "distinct bigrams",
        "",
        f"{first['distinct_2']:z.2f}",
        f"{last['distinct_2']:z.2f}",
        f"{last['distinct_2'] - first['distinct_2']:+z.2f}",
    )
    table.add_section()
    add_rewards(table, first, last)
    add_win_rates(table, before, after)
    gain, low, high = paired_gain(before, after)
    table.add_row(
        "reward",
        str(first["n_prompts"]),
        interval(first, "reward"),
        interval(last, "reward"),
        f"{gain:+z.3f} [{low:+z.3f}, {high:+z.3f}]",
        style="bold",
    )
    console.print(table)
    console.print(
        f"Intervals: {first['confidence']:.0%} bootstrap over prompts; the change is paired by prompt.", markup=False
    )


def add_rewards(table: Table, first: dict[str, Any], last: dict[str, Any]) -> None:
    """The mean of each reward, where there are several: parts of the task reward, and those that are only measured."""
    keys = [key for key in first if key.startswith("rewards/") and key in last]
    for key in keys if len(keys) > 1 else []:
        name, old, new = key.split("/")[1], first[key], last[key]
        if old is not None and new is not None:
            table.add_row(name, "", f"{old:z.3f}", f"{new:z.3f}", f"{new - old:+z.3f}")


def add_win_rates(table: Table, before: str, after: str) -> None:
    """Against the initial policy, where there is a judge."""
    found = [read_verdict(name) for name in (before, after)]
    if any(found):
        shown = [interval(verdict, "win_rate") if verdict else "" for verdict in found]
        table.add_row("win-rate", "", *shown, "")
        table.add_row("of which ties", "", *(f"{verdict['ties']:z.2f}" if verdict else "" for verdict in found), "")


def read_verdict(name: str) -> dict[str, Any]:
    """Nothing for the initial policy, and without a judge."""
    path = paths.verdict(name)
    found: dict[str, Any] = json.loads(checked(path).read_text(encoding="utf-8")) if path.exists() else {}
    return found


def interval(found: dict[str, Any], key: str) -> str:
    return f"{found[key]:z.3f} [{found[f'{key}_low']:z.3f}, {found[f'{key}_high']:z.3f}]"
