"""Win-rate of one policy against another, with what can be said of its certainty.

An outcome is 1 for a win, 0 for a loss, .5 for a tie. Several answers to one prompt are averaged first: prompts are
what was drawn independently.

Dimension suffixes: P prompts, N pairs of answers.
"""

import math
from collections.abc import Sequence

import numpy as np

Vector = np.ndarray
RIDGE = 1e-3  # keeps the slope finite where length alone tells wins from losses
NEWTON_STEPS = 50


def win_rate(outcome_N: Sequence[float]) -> float:
    """Share of wins, a tie counting half."""
    return float(np.mean(outcome_N))


def sign_test(outcome_P: Sequence[float]) -> float:
    """Two-sided exact sign test: the probability of a split at least as uneven by a fair coin, ties left out.

    A prompt counts as won or lost by whether its mean outcome is above or below .5.
    """
    wins, losses = sum(o > 0.5 for o in outcome_P), sum(o < 0.5 for o in outcome_P)
    count = wins + losses
    if count == 0:
        return 1.0
    tail: float = sum(math.comb(count, k) for k in range(min(wins, losses) + 1)) / 2**count
    return min(1.0, 2 * tail)


def length_controlled(outcome_N: Sequence[float], length_N: Sequence[float], other_N: Sequence[float]) -> float:
    """Win-rate at equal length (after Dubois et al. 2024, arXiv 2404.04475).

    A logistic regression of the outcome on the difference in length, log(length / other's length) in units of its
    standard deviation; what it predicts for a difference of zero. Where all differences are zero it is the win-rate.
    """
    outcome = np.asarray(outcome_N, dtype=float)
    difference = np.log(np.asarray(length_N, dtype=float) / np.asarray(other_N, dtype=float))
    spread = float(difference.std())
    if spread == 0.0:
        return win_rate(outcome_N)
    intercept, _ = _logistic(outcome, difference / spread)
    return float(1 / (1 + math.exp(-intercept)))


def _logistic(outcome_N: Vector, feature_N: Vector) -> Vector:
    """Intercept and slope by Newton's method, with a small ridge on both."""
    design = np.stack([np.ones_like(feature_N), feature_N], axis=1)
    weights = np.zeros(2)
    for _ in range(NEWTON_STEPS):
        predicted = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (outcome_N - predicted) - RIDGE * weights
        hessian = (design * (predicted * (1 - predicted))[:, None]).T @ design + RIDGE * np.eye(2)
        weights = weights + np.linalg.solve(hessian, gradient)
    return weights
