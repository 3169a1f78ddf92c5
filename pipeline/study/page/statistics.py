"""Numbers of a study's page: rows of its tables, and contrasts between methods with their intervals.

Methods are compared on the same seeds, conditions (beta and flips) and prompts. Runs of one seed share their random
numbers, so that they are no independent observations; neither are answers to one prompt. A contrast is therefore taken
to a matrix of seeds by prompts, its mean over conditions in each cell, and the interval of its mean lets both vary:

    se^2 = Var_S(mean over prompts) / S + Var_P(mean over seeds) / P        mean +- t(S - 1) * se

What varies from seed to seed within a prompt is in both terms: the interval is a little wide rather than narrow.
What it does not cover: another fine-tuned model, another reward model, another task.

Dimension suffixes: S seeds, P held-out prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipeline.study.runs.tables import RUN
from stages.evaluate.bootstrap import bootstrap_interval

RESAMPLES, SEED = 4000, 0
MEANS = ("gold", "proxy", "kl", "length", "entropy", "length_controlled_win_rate", "clipped")
COSTS = ("tokens", "seconds", "peak_memory_mb", "state_mb")
T_975 = (  # the .975 quantile of Student's t by degrees of freedom, from 1
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The tables of all methods, in the order of methods.yaml; `noise`: the share of flips by its name."""

    curves: pl.DataFrame
    outcomes: pl.DataFrame
    costs: pl.DataFrame
    noise: Mapping[str, float]

    @property
    def final(self) -> pl.DataFrame:
        """One row per run: the policy that it is judged by."""
        return self.curves.filter("final")

    @property
    def methods(self) -> list[str]:
        return self.curves["method"].unique(maintain_order=True).to_list()

    def outcomes_by(self, method: str, **condition: float | str) -> np.ndarray:
        """Mean outcome against the fine-tuned model [S, P] over the conditions, or those that are named."""
        rows = self.outcomes.filter(method=method, **condition)
        cells = rows.group_by("seed", "prompt_id").agg(pl.col("outcome").mean()).sort("seed", "prompt_id")
        table = cells.pivot("prompt_id", index="seed", values="outcome").sort("seed").drop("seed")
        return table.select(sorted(table.columns)).to_numpy()


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval; infinite where there is but one seed."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if not np.isfinite(self.low):
            return f"{self.mean:+.3f} (one seed)"
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def estimate(value_SP: np.ndarray) -> Estimate:
    """Of values by seed and prompt; a single column has no prompts to vary."""
    seeds, prompts = value_SP.shape
    mean = float(np.nanmean(value_SP))
    if seeds < 2:
        return Estimate(mean, -np.inf, np.inf)
    variance = np.nanmean(value_SP, axis=1).var(ddof=1) / seeds
    if prompts > 1:
        variance += np.nanmean(value_SP, axis=0).var(ddof=1) / prompts
    reach = T_975[min(seeds - 1, len(T_975)) - 1] * float(np.sqrt(variance))
    return Estimate(mean, mean - reach, mean + reach)


def summary(results: Results, by: Sequence[str]) -> pl.DataFrame:
    """One row for each value of the columns `by` (such as method, or method, beta and flips)."""
    final = results.final.join(results.costs, on=RUN, validate="1:1", maintain_order="left")
    rate = pl.col("win_rate")
    means = [pl.col(name).mean() for name in (*MEANS, *COSTS)]
    groups = final.group_by(by, maintain_order=True).agg(
        rate.mean(), rate.std().alias("win_rate_std"), *means, pl.col("models").max(), pl.len().alias("runs")
    )
    return groups.join(prompt_intervals(results.outcomes, by), on=by, validate="1:1", maintain_order="left")


def prompt_intervals(outcomes: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """`win_rate_low` and `win_rate_high`: a bootstrap over prompts, of which each is the mean over the runs."""
    prompts = outcomes.group_by(*by, "prompt_id", maintain_order=True).agg(pl.col("outcome").mean())
    groups = prompts.group_by(by, maintain_order=True).agg("outcome")
    bounds = [bootstrap_interval(np.asarray(values), 0.95, RESAMPLES, SEED) for values in groups["outcome"].to_list()]
    return groups.select(by).with_columns(
        pl.Series("win_rate_low", [low for low, _ in bounds], dtype=pl.Float64),
        pl.Series("win_rate_high", [high for _, high in bounds], dtype=pl.Float64),
    )
