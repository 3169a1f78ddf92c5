"""Bias and variance of every estimator on one small example, exact: what `rloo variance` writes.

The example is one prompt with a fixed policy, written out below. With other numbers the rows that claim exactness (bias
0, factor (K-1)/K, Var[A] = sigma^2 K/(K-1)) stay as they are; the other figures, and who has less variance, change.

Dimension suffixes as in `stages/enumeration/tabular.py`.
"""

import polars as pl
import torch
from torch import Tensor

from stages.advantage.batch_mean import batch_mean
from stages.advantage.dr_grpo import dr_grpo
from stages.advantage.grpo import grpo
from stages.advantage.max_rl import max_rl
from stages.advantage.moving_average import moving_average
from stages.advantage.opo import opo
from stages.advantage.raft import raft
from stages.advantage.reinforce import reinforce
from stages.advantage.reinforce_pp import reinforce_pp
from stages.advantage.remax import remax
from stages.advantage.rloo import rloo
from stages.common.tables import GROUP
from stages.enumeration.tabular import (
    Estimator,
    Moments,
    Tabular,
    exact_gradient,
    greedy_sequence,
    moments,
    probabilities,
    scored_sequences,
    token_gradients,
)

GROUP_SIZES = (2, 4, 8)
LOGITS = [[0.3, -0.4, 0.8], [0.5, -1.1, 0.2], [-0.6, 0.9, 0.1], [1.2, 0.0, -0.7]]  # first token; second after each
REFERENCE = [[0.0, 0.2, 0.1], [-0.3, 0.4, 0.0], [0.6, -0.2, -0.5], [0.1, 0.3, -0.1]]
REWARD = [0.3, 1.0, 0.0, 0.7, 0.2, 0.0, 1.0, 0.1, 0.5]  # of the sequences 00, 01, 02, 10, ...


def example(beta: float) -> Tabular:
    """The prompt, policy and rewards of the study."""
    logits, reference, reward = (torch.tensor(x, dtype=torch.float64) for x in (LOGITS, REFERENCE, REWARD))
    return Tabular(logits, reference, reward, beta)


def scores_of(world: Tabular) -> Tensor:
    """Score of each sequence, [S]."""
    score_S: Tensor = scored_sequences(world)["score"].to_torch()
    return score_S


def expected_score(world: Tabular) -> float:
    """What the average of past scores converges to as long as the policy stays the same."""
    return float(probabilities(world) @ scores_of(world))


def score_variance(world: Tabular) -> float:
    """sigma^2, the variance of one sample's score."""
    return float(probabilities(world) @ (scores_of(world) - expected_score(world)).square())


def optimal_constant(world: Tabular) -> float:
    """b* = E[R |g|^2] / E[|g|^2], g = grad log pi(y): of all constant baselines the one with the least variance."""
    weight_S = probabilities(world) * token_gradients(world).sum(dim=1).square().sum(dim=1)
    return float(weight_S @ scores_of(world) / weight_S.sum())


def remax_of(world: Tabular) -> Estimator:
    """ReMax, each group with the same greedy completion."""
    greedy = float(scores_of(world)[greedy_sequence(world)])
    return lambda frame: remax(frame, frame.select(*GROUP).unique().with_columns(score=pl.lit(greedy)))


def estimators(world: Tabular) -> dict[str, Estimator]:
    """Estimators by the name that params.yaml gives them, and their options."""
    return {
        "reinforce": reinforce,
        "moving_average": lambda frame: moving_average(frame, expected_score(world)),
        "optimal constant": lambda frame: moving_average(frame, optimal_constant(world)),
        "remax": remax_of(world),
        "rloo": rloo,
        "batch_mean (left out)": lambda frame: batch_mean(frame, leave_one_out=True),
        "batch_mean": lambda frame: batch_mean(frame, leave_one_out=False),
        "dr_grpo": dr_grpo,
        "opo": opo,
        "grpo (population)": lambda frame: grpo(frame, std="population"),
        "grpo (sample)": lambda frame: grpo(frame, std="sample"),
        "reinforce_pp (batch)": lambda frame: reinforce_pp(frame, baseline="batch"),
        "reinforce_pp (group)": lambda frame: reinforce_pp(frame, baseline="group"),
        "max_rl": max_rl,
        "raft": raft,
    }


def figures(found: Moments, exact_P: Tensor, sigma2: float) -> dict[str, float]:
    """One row of the study: how the estimate lies to the exact gradient g, and how much it scatters."""
    along = float(found.expected_P @ exact_P)
    length, norm = float(found.expected_P.norm()), float(exact_P.norm())
    return {
        "advantage_variance": found.advantage_variance,
        "score_variance": sigma2,
        "variance_ratio": found.advantage_variance / sigma2,
        "relative_bias": float((found.expected_P - exact_P).norm()) / norm,
        "factor_along_gradient": along / norm**2,
        "cosine": along / (length * norm),
        "gradient_variance": found.variance,
        "signal_to_noise": length**2 / found.variance,
    }


def study(beta: float) -> pl.DataFrame:
    """One row per group size `k` and `estimator`, sorted by k.

    advantage_variance     Var[A] of one row               score_variance         sigma^2, of one sample's score
    variance_ratio         Var[A] / sigma^2                relative_bias          |E[ghat] - g| / |g|
    factor_along_gradient  <E[ghat], g> / |g|^2            cosine                 of E[ghat] with g
    gradient_variance      trace of Cov[ghat]              signal_to_noise        |E[ghat]|^2 / gradient_variance
    variance_to_rloo       gradient_variance over that of rloo at the same k
    """
    world = example(beta)
    exact_P, sigma2 = exact_gradient(world), score_variance(world)
    rows = [
        {"k": k, "estimator": name, **figures(moments(world, estimator, k), exact_P, sigma2)}
        for k in GROUP_SIZES
        for name, estimator in estimators(world).items()
    ]
    of_rloo = pl.col("gradient_variance").filter(pl.col("estimator") == "rloo").first().over("k")
    return pl.DataFrame(rows).with_columns(variance_to_rloo=pl.col("gradient_variance") / of_rloo)
