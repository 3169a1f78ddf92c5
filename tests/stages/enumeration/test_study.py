"""Bias and variance by enumeration: what holds for every policy, and sums written out by hand."""

import dataclasses
import math

import polars as pl
import pytest
import torch

from stages.advantage.moving_average import moving_average
from stages.advantage.rloo import rloo
from stages.advantage.token_kl import reward_to_go
from stages.enumeration.study import (
    GROUP_SIZES,
    estimators,
    example,
    optimal_constant,
    score_variance,
    scores_of,
    study,
)
from stages.enumeration.tabular import (
    LENGTH,
    by_group,
    exact_gradient,
    gradient_estimates,
    groups,
    mean_and_variance,
    moments,
    multiset_weights,
    multisets,
    probabilities,
    token_gradients,
)

UNBIASED = ("reinforce", "moving_average", "optimal constant", "remax", "rloo", "batch_mean (left out)")
CONSTANT = UNBIASED[:4]  # a baseline that is the same number whatever is sampled
BETA = 0.3


@pytest.fixture(scope="module")
def table():
    return study(BETA)


def column(table, name, estimator):
    return table.filter(pl.col("estimator") == estimator).sort("k")[name].to_list()


def random_policy():
    logits, reference = (
        torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    return dataclasses.replace(example(BETA), logits_CV=logits, reference_CV=reference)


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def pairwise_comparisons(world):
    """P(R' < R_a) and P(R' > R_a) of a second sample, for each sequence a; and p, g."""
    p_S, score_S = probabilities(world), scores_of(world)
    differs_SS = world.reward_S[:, None] != world.reward_S[None, :]  # equal task rewards count as a tie
    below_S = (differs_SS & (score_S[None, :] < score_S[:, None])).double() @ p_S
    above_S = (differs_SS & (score_S[None, :] > score_S[:, None])).double() @ p_S
    return below_S, above_S, p_S, token_gradients(world).sum(dim=1)


@pytest.mark.parametrize("beta", [0.0, BETA])
def test_bias_of_grpo_for_pairs_by_hand(beta):
    """K = 2, population std: (R_1 - mean) / std = sign(R_1 - R_2), however small the difference; 0 if the task rewards
    are equal.

    E[ghat] = sum_ab p_a p_b (sign(R_a - R_b) g_a + sign(R_b - R_a) g_b) / 2 = sum_a p_a g_a [P(R' < R_a) - P(R' > R_a)]

    It climbs the rate of wins against a second sample, not the expected score. With sample std: 1 / sqrt(2) of it.
    """
    world = example(beta)
    below_S, above_S, p_S, gradient_SP = pairwise_comparisons(world)
    expected_P = (p_S * (below_S - above_S)) @ gradient_SP
    population = moments(world, estimators(world)["grpo (population)"], 2)
    close(population.expected_P, expected_P)
    close(moments(world, estimators(world)["grpo (sample)"], 2).expected_P, expected_P / math.sqrt(2))
    # A is +-1, or 0 in a tie, with mean 0: its variance is the probability of no tie
    assert population.advantage_variance == pytest.approx((p_S @ (below_S + above_S)).item(), abs=1e-12)
    exact_P = exact_gradient(world)
    assert (expected_P - exact_P).norm() > 0.1 * exact_P.norm()


def test_raft_for_pairs_by_hand():
    """K = 2: the better of the two has weight 1 of K, and both have it in a tie, so that
    E[ghat] = sum_a p_a g_a [P(R' < R_a) + P(R' = R_a)].
    """
    world = example(0.0)
    _, above_S, p_S, gradient_SP = pairwise_comparisons(world)
    close(moments(world, estimators(world)["raft"], 2).expected_P, (p_S * (1 - above_S)) @ gradient_SP)


@pytest.mark.parametrize("k", GROUP_SIZES)
def test_variance_of_the_leave_one_out_advantage(k):
    """Given the prompt, R_i and b_i are independent: Cov(R_i, b_i) = 0, Var[b] = sigma^2 / (K-1), and so
    Var[A] = sigma^2 K / (K-1).

    Notes in circulation have Cov = sigma^2 / (K-1), or a variance of 0 at K = 2. Both are wrong: at K = 2 it is
    2 sigma^2.
    """
    world, picks_MK = example(BETA), multisets(k)
    sigma2, rows = score_variance(world), rloo(groups(world, picks_MK))
    row_weight = multiset_weights(world, picks_MK).repeat_interleave(k) / k
    values = torch.stack([by_group(rows, name, k).flatten() for name in ("advantage", "score", "baseline")], dim=1)
    centred = values - row_weight @ values
    covariance = centred.T @ (row_weight[:, None] * centred)
    assert covariance[0, 0].item() == pytest.approx(sigma2 * k / (k - 1), abs=1e-12)
    assert covariance[1, 2].item() == pytest.approx(0, abs=1e-12)
    assert covariance[2, 2].item() == pytest.approx(sigma2 / (k - 1), abs=1e-12)


def with_kl_on_tokens(world, k):
    """Expected gradient and variance of rloo on task rewards, with the KL as reward-to-go of tokens."""
    picks_MK = multisets(k)
    table = reward_to_go(rloo(groups(dataclasses.replace(world, beta=0.0), picks_MK)), world.beta)
    advantage_MKT = torch.tensor(table["token_advantages"].to_list(), dtype=torch.float64).view(-1, k, LENGTH)
    estimate_MP = gradient_estimates(world, picks_MK, advantage_MKT)
    return mean_and_variance(multiset_weights(world, picks_MK), estimate_MP)


@pytest.mark.parametrize("k", GROUP_SIZES)
@pytest.mark.parametrize(("world", "less"), [(random_policy(), True), (example(BETA), False)])
def test_kl_as_reward_to_go_of_tokens_is_unbiased_and_often_but_not_always_less_noisy(world, less, k):
    """What is left out has mean 0, but may be correlated with the rest; and no baseline takes off the mean KL."""
    expected_P, variance = with_kl_on_tokens(world, k)
    close(expected_P, exact_gradient(world))
    assert (variance < 0.8 * moments(world, rloo, k).variance) == less
    assert (variance > 1.1 * moments(world, rloo, k).variance) != less


@pytest.mark.parametrize("shift", [-0.1, 0.1])
def test_no_other_constant_baseline_has_less_variance_than_the_optimal_one(shift):
    world = example(BETA)
    best = optimal_constant(world)
    other = moments(world, lambda frame: moving_average(frame, best + shift), 2)
    assert other.variance > moments(world, lambda frame: moving_average(frame, best), 2).variance


def test_one_row_per_group_size_and_estimator(table):
    names = list(estimators(example(BETA)))
    assert table.select("k", "estimator").rows() == [(k, name) for k in GROUP_SIZES for name in names]
    assert table.null_count().sum_horizontal().item() == 0
    assert table.select(pl.selectors.float().is_finite().all()).row(0) == (True,) * 9


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_at_every_group_size(table, name):
    assert max(column(table, "relative_bias", name)) < 1e-10
    assert column(table, "factor_along_gradient", name) == pytest.approx([1] * 3, abs=1e-10)


@pytest.mark.parametrize("name", CONSTANT)
def test_with_a_constant_baseline_variance_falls_as_one_over_k(table, name):
    first, second, third = column(table, "gradient_variance", name)
    assert [second, third] == pytest.approx([first / 2, first / 4], abs=1e-12)
    assert column(table, "variance_ratio", name) == pytest.approx([1] * 3, abs=1e-12)


def test_dr_grpo_is_rloo_times_k_minus_1_over_k(table):
    factors = [(k - 1) / k for k in GROUP_SIZES]
    assert column(table, "factor_along_gradient", "dr_grpo") == pytest.approx(factors, abs=1e-10)
    assert column(table, "relative_bias", "dr_grpo") == pytest.approx([1 / k for k in GROUP_SIZES], abs=1e-10)
    assert column(table, "variance_to_rloo", "dr_grpo") == pytest.approx([f**2 for f in factors], abs=1e-10)
    assert column(table, "signal_to_noise", "dr_grpo") == pytest.approx(column(table, "signal_to_noise", "rloo"))
    # sigma^2 K/(K-1) times (K-1)^2/K^2
    assert column(table, "variance_ratio", "dr_grpo") == pytest.approx(factors, abs=1e-10)


def test_a_batch_of_one_group_makes_twins(table):
    twins = {
        "batch_mean": "dr_grpo",
        "batch_mean (left out)": "rloo",
        "reinforce_pp (batch)": "grpo (population)",
        "reinforce_pp (group)": "grpo (population)",
    }
    figures = table.drop("estimator", "k").columns
    for one, other in twins.items():
        for name in figures:
            assert column(table, name, one) == pytest.approx(column(table, name, other), abs=1e-10)
