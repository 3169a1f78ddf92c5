"""The contents of judge.json."""

from typing import Any

import polars as pl

from stages.common.params import Params
from stages.common.seeds import seed_of
from stages.evaluate.bootstrap import bootstrap_interval
from stages.judge.statistics import length_controlled, sign_test, win_rate


def summarise(table: pl.DataFrame, params: Params) -> dict[str, Any]:
    """Win-rate with its bootstrap interval over prompts, sign test, and win-rate at equal length.

    Pairs without an outcome are left out and counted.
    """
    known = table.drop_nulls("outcome")
    outcome_P = known.group_by("prompt_id", maintain_order=True).agg(pl.col("outcome").mean()).sort("prompt_id")
    values_P = outcome_P["outcome"].to_numpy()
    settings = params.evaluate
    low, high = bootstrap_interval(values_P, settings.confidence, settings.resamples, seed_of(params.seed, "judge"))
    return {
        "win_rate": win_rate(values_P.tolist()),
        "win_rate_low": low,
        "win_rate_high": high,
        "confidence": settings.confidence,
        "length_controlled_win_rate": length_controlled(
            known["outcome"].to_list(), known["length"].to_list(), known["other_length"].to_list()
        ),
        "sign_test_p": sign_test(values_P.tolist()),
        "ties": float((known["outcome"] == 0.5).mean()),  # type: ignore[arg-type]
        "mean_length": known["length"].mean(),
        "other_mean_length": known["other_length"].mean(),
        "n_prompts": len(values_P),
        "n_pairs": known.height,
        "n_without_outcome": table.height - known.height,
    }
