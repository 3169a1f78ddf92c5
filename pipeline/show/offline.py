"""Policies that were trained on pairs alone, beside the initial one and the last iteration."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.show.evaluation import interval, read_evaluation
from stages.common import paths
from stages.common.checked import checked
from stages.common.params import Offline
from stages.common.params_file import load_params
from stages.common.tables import OFFLINE_STEPS, read_table

COLUMNS = ("trained by", "held-out reward", "win-rate", "KL", "length")


def how_trained(name: str, settings: Offline) -> str:
    """`40 steps of dpo on the pairs of proxy`."""
    steps = read_table(paths.steps(name), OFFLINE_STEPS, ("step",))
    return f"{steps.height - 1} steps of {settings.objective} on the pairs of {settings.pairs}"


def offline(console: Console, last: str) -> None:
    """One line for each policy; nothing if params.yaml has none of `offline`."""
    policies = load_params().offline
    if not policies:
        return
    table = Table(title="Trained on pairs alone, beside the last iteration")
    table.add_column("")
    for number, title in enumerate(COLUMNS):
        table.add_column(title, justify="right" if number else "left")
    told = {paths.INITIAL: "", **{name: how_trained(name, settings) for name, settings in policies.items()}}
    for name, trained in (told | {last: f"{paths.iteration_number(last)} iterations"}).items():
        found = read_evaluation(name)
        kl = "-" if found["kl"] is None else f"{found['kl']:z.2f}"
        numbers = (kl, f"{found['completions/mean_length']:.1f}")
        table.add_row(name, trained, interval(found, "reward"), _win_rate(name), *numbers)
    console.print(table)


def _win_rate(name: str) -> str:
    """Empty without a judge, and for the initial policy, which the others are compared with."""
    path = paths.verdict(name)
    found: dict[str, Any] = json.loads(checked(path).read_text(encoding="utf-8")) if path.exists() else {}
    return interval(found, "win_rate") if found else ""
