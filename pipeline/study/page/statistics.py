"""Numbers of a study's page: a row per method and condition, and paired differences between methods.

Two methods are compared run by run: at the same beta, the same flips and the same seed. The interval of a mean
over runs is a bootstrap over runs, that of a win-rate in the table one over the held-out prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipeline.study.runs.tables import RUN
from stages.evaluate.bootstrap import bootstrap_interval

CONDITION = ("beta", "flips", "seed")
CONFIDENCE, RESAMPLES, SEED = 0.95, 4000, 0
MEANS = ("gold", "proxy", "kl", "length", "entropy", "length_controlled_win_rate", "clipped")


@dataclass(frozen=True)
class Results:
    """The tables of all methods, in the order of methods.yaml."""

    curves: pl.DataFrame
    outcomes: pl.DataFrame
    costs: pl.DataFrame

    @property
    def final(self) -> pl.DataFrame:
        """One row per run: the policy that it is judged by."""
        return self.curves.filter("final")

    @property
    def methods(self) -> list[str]:
        return self.curves["method"].unique(maintain_order=True).to_list()

    def win_rates(self, method: str) -> pl.DataFrame:
        """`win_rate` by condition."""
        return self.final.filter(method=method).select(*CONDITION, "win_rate").sort(CONDITION)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Bootstrap interval of the mean; of one value the value itself."""
    low, high = bootstrap_interval(np.asarray(values, dtype=float), CONFIDENCE, RESAMPLES, SEED)
    return low, high


def summary(results: Results, by: Sequence[str]) -> pl.DataFrame:
    """One row for each value of the columns `by` (such as method, or method, beta and flips)."""
    final = results.final.join(results.costs, on=RUN, validate="1:1", maintain_order="left")
    means = [pl.col(name).mean() for name in (*MEANS, "tokens", "seconds", "peak_memory_mb", "weights_mb")]
    groups = final.group_by(by, maintain_order=True).agg(
        pl.len().alias("runs"), pl.col("win_rate").mean(), pl.col("win_rate").std().alias("win_rate_std"), *means,
        pl.col("models").max(),
    )  # fmt: skip
    return groups.join(prompt_intervals(results.outcomes, by), on=by, validate="1:1", maintain_order="left")


def prompt_intervals(outcomes: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """`win_rate_low` and `win_rate_high`: over prompts, of which each is the mean over the runs."""
    prompts = outcomes.group_by(*by, "prompt_id", maintain_order=True).agg(pl.col("outcome").mean())
    groups = prompts.group_by(by, maintain_order=True).agg("outcome")
    bounds = [interval(values) for values in groups["outcome"].to_list()]
    return groups.select(by).with_columns(
        pl.Series("win_rate_low", [low for low, _ in bounds], dtype=pl.Float64),
        pl.Series("win_rate_high", [high for _, high in bounds], dtype=pl.Float64),
    )


def differences(results: Results, method: str, other: str) -> list[float]:
    """Win-rate of `method` less that of `other`, run by run."""
    both = results.win_rates(method).join(results.win_rates(other), on=CONDITION, how="inner", validate="1:1")
    return (both["win_rate"] - both["win_rate_right"]).to_list()
