"""How good a reward model is on pairs: accuracy, likelihood, calibration, and where its rewards lie.

Calibration (reliability diagrams, Guo et al. 2017): pairs whose predicted probability sigmoid(r_1 - r_2) is near .8
should have the first one chosen in 80 % of cases. Which of the two is the first is drawn by the pair's id: with the
chosen one always first every outcome would be 1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from stages.common.seeds import seed_of

BINS = 10


def share_right(difference: np.ndarray) -> float:
    """Share of the differences (better minus worse) that are positive; a tie is half right."""
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def gold_accuracy(table: pl.DataFrame, difference: np.ndarray) -> float | None:
    """Accuracy against the gold scores, which labels may contradict; None where no pair has them."""
    gold = (table["chosen_gold"] - table["rejected_gold"]).to_numpy()
    known = np.isfinite(gold) & (gold != 0)
    return share_right((difference * np.sign(gold))[known]) if known.any() else None


def probability(difference: np.ndarray) -> np.ndarray:
    """sigmoid, without overflow."""
    found: np.ndarray = np.exp(-np.logaddexp(0.0, -difference))
    return found


def calibration(predicted: np.ndarray, outcome: np.ndarray, bins: int = BINS) -> dict[str, Any]:
    """Bins of equal width over predicted probabilities, and the expected calibration error: the mean over pairs of the
    distance between a bin's mean prediction and its observed frequency.
    """
    place = np.minimum((predicted * bins).astype(int), bins - 1)
    found = []
    for number in np.unique(place):
        inside = place == number
        row = {"low": number / bins, "high": (number + 1) / bins, "pairs": int(inside.sum())}
        found.append(row | {"predicted": float(predicted[inside].mean()), "observed": float(outcome[inside].mean())})
    error = sum(row["pairs"] * abs(row["predicted"] - row["observed"]) for row in found) / len(predicted)
    return {"error": error, "bins": found}


def spread(values: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Mean and (population) standard deviation."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}


def pair_metrics(table: pl.DataFrame, chosen: Sequence[float], rejected: Sequence[float], seed: int) -> dict[str, Any]:
    """Metrics over the pairs of one split; `loss` is the negative log-likelihood alone, nats per pair."""
    chosen_P, rejected_P = np.asarray(chosen), np.asarray(rejected)
    difference_P = chosen_P - rejected_P
    first_P = np.array([seed_of(seed, "first", pair_id) % 2 for pair_id in table["pair_id"]])
    return {
        "pairs": table.height,
        "accuracy": share_right(difference_P),
        "gold_accuracy": gold_accuracy(table, difference_P),
        "loss": float(np.logaddexp(0.0, -difference_P).mean()),
        "difference": spread(difference_P),
        "chosen": spread(chosen_P),
        "rejected": spread(rejected_P),
        "calibration": calibration(probability(np.where(first_P, difference_P, -difference_P)), first_P),
    }
