"""Exactness by enumeration: the expectation of the estimator over all K-tuples is the gradient of E[r] - beta KL.

A tabular policy of 3 tokens and length 2 has 9 sequences, so 81 pairs and 729 triples. No Monte Carlo. Gradients come
from the loss of the update here, tuple by tuple; `stages/enumeration/tabular.py`, which counts multisets instead, has
to agree.
"""

import dataclasses
import itertools

import polars as pl
import pytest
import torch

from stages.advantage.batch_mean import batch_mean
from stages.advantage.rloo import rloo
from stages.advantage.token_kl import reward_to_go
from stages.enumeration.study import estimators
from stages.enumeration.tabular import (
    LENGTH,
    SEQUENCES,
    Tabular,
    by_group,
    exact_gradient,
    groups,
    moments,
    multiset_weights,
    multisets,
    probabilities,
    token_gradients,
    token_logprobs,
)
from tests.stages.update.tokens import reinforce_loss

REWARD = torch.tensor([0.3, 1.0, 0.0, 0.7, 0.2, 0.0, 1.0, 0.1, 0.5], dtype=torch.float64)

UNBIASED = ("rloo", "reinforce", "moving_average", "optimal constant", "remax", "batch_mean (left out)")
SHRUNK = ("dr_grpo", "batch_mean")
REWEIGHTED = (
    "grpo (population)",
    "grpo (sample)",
    "reinforce_pp (batch)",
    "reinforce_pp (group)",
    "max_rl",
    "opo",
    "raft",
)


def tabular(beta):
    logits, reference = (
        torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    return Tabular(logits, reference, REWARD, beta)


def all_tuples(k):
    """[9^K tuples, K]."""
    return torch.tensor(list(itertools.product(range(len(SEQUENCES)), repeat=k)))


def expected_gradient(world, picks_MK, advantage_MKT):
    """Minus the expected gradient of the loss: each tuple's, weighted by the tuple's probability."""
    logits = world.logits_CV.clone().requires_grad_()
    logp_ST = token_logprobs(logits)
    probability_M = logp_ST.detach().sum(dim=1)[picks_MK].sum(dim=1).exp()
    loss = sum(
        p * reinforce_loss(logp_ST[picks], advantage)
        for p, picks, advantage in zip(probability_M, picks_MK, advantage_MKT, strict=True)
    )
    return -torch.autograd.grad(loss, logits)[0].flatten()


def by_tuples(world, name, k):
    """All tuples, the advantage of each token in them, and the expected gradient."""
    picks_MK = all_tuples(k)
    advantage_MK = by_group(estimators(world)[name](groups(world, picks_MK)), "advantage", k)
    advantage_MKT = advantage_MK[:, :, None].expand(-1, -1, LENGTH)
    return picks_MK, advantage_MK, expected_gradient(world, picks_MK, advantage_MKT)


def close(found, expected, tolerance=1e-10):
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def score_functions(world):
    """grad log pi(y) of the nine sequences, by hand: one-hot minus probabilities, in the rows of logits it passes."""
    policy_CV, gradient_SCV = world.logits_CV.softmax(dim=-1), torch.zeros(9, 4, 3, dtype=torch.float64)
    for number, (first, second) in enumerate(SEQUENCES):
        for context, token in ((0, first), (1 + first, second)):
            gradient_SCV[number, context] = -policy_CV[context]
            gradient_SCV[number, context, token] += 1
    return gradient_SCV.flatten(start_dim=1)


def test_score_functions_and_exact_gradient_by_hand():
    world = tabular(0.3)
    gradient_SP, p_S = score_functions(world), probabilities(world)
    close(token_gradients(world).sum(dim=1), gradient_SP, 1e-14)
    log_ratio_S = p_S.log() - token_logprobs(world.reference_CV).sum(dim=1)
    close(exact_gradient(world), (p_S * (REWARD - 0.3 * log_ratio_S)) @ gradient_SP, 1e-14)


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_with_kl_in_the_reward(name, k, beta):
    world = tabular(beta)
    close(by_tuples(world, name, k)[2], exact_gradient(world))


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", SHRUNK)
def test_a_baseline_that_includes_the_sample_shrinks_the_gradient_by_exactly_k_minus_1_over_k(name, k, beta):
    world = tabular(beta)
    found, exact = by_tuples(world, name, k)[2], exact_gradient(world)
    close(found, exact * (k - 1) / k)
    assert (found - exact).abs().max() > 1e-3


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", REWEIGHTED)
def test_reweighted_gradients_are_no_multiple_of_the_exact_one(name, k):
    world = tabular(0.0)
    found, exact = by_tuples(world, name, k)[2], exact_gradient(world)
    along = (found @ exact) / (exact @ exact)
    assert (found - along * exact).norm() > 1e-3 * exact.norm()


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", UNBIASED + SHRUNK + REWEIGHTED)
def test_multisets_give_the_moments_of_all_tuples(name, k):
    world = tabular(0.3)
    picks_MK, advantage_MK, expected_P = by_tuples(world, name, k)
    weight_M = probabilities(world)[picks_MK].prod(dim=1)
    estimate_MP = (advantage_MK[:, :, None] * score_functions(world)[picks_MK]).mean(dim=1)
    variance = weight_M @ (estimate_MP - expected_P).square().sum(dim=1)
    first_M = advantage_MK[:, 0]
    found = moments(world, estimators(world)[name], k)
    close(found.expected_P, expected_P, 1e-12)
    assert found.variance == pytest.approx(variance.item(), abs=1e-12)
    spread = weight_M @ (first_M - weight_M @ first_M).square()
    assert found.advantage_variance == pytest.approx(spread.item(), abs=1e-12)


@pytest.mark.parametrize(("k", "count"), [(2, 45), (4, 495), (8, 12870)])
def test_multisets_are_all_and_their_probabilities_sum_to_one(k, count):
    picks_MK = multisets(k)
    assert len({tuple(picks) for picks in picks_MK.tolist()}) == count
    assert multiset_weights(tabular(0.0), picks_MK).sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("k", [2, 3])
def test_kl_as_reward_to_go_of_tokens_is_unbiased(k):
    """The baseline is one of task rewards; the penalty comes off each token's advantage after it."""
    beta, picks_MK = 0.3, all_tuples(k)
    table = reward_to_go(rloo(groups(tabular(0.0), picks_MK)), beta)
    advantage_MKT = torch.tensor(table["token_advantages"].to_list(), dtype=torch.float64).view(-1, k, LENGTH)
    close(expected_gradient(tabular(beta), picks_MK, advantage_MKT), exact_gradient(tabular(beta)))


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_a_batch_of_several_prompts(leave_one_out):
    """Two prompts, one sample each: n = 2 rows. Including itself the mean gives (n-1)/n of the gradient, else all."""
    worlds = [tabular(0.0), dataclasses.replace(tabular(0.0), reward_S=REWARD.flip(0) * 2)]
    pairs = torch.tensor(list(itertools.product(range(len(SEQUENCES)), repeat=2)))
    frames = [groups(world, pairs[:, [place]]) for place, world in enumerate(worlds)]
    table = pl.concat([f.with_columns(prompt_id=pl.lit(f"x{n}")) for n, f in enumerate(frames)])
    found = batch_mean(table, leave_one_out=leave_one_out).sort("iteration", "prompt_id")
    advantage_MN = found["advantage"].to_torch().view(-1, 2)
    gradient_SP, p_S = score_functions(worlds[0]), probabilities(worlds[0])
    weight_M = p_S[pairs].prod(dim=1)
    estimate_P = torch.einsum("m,mn,mnp->p", weight_M, advantage_MN, gradient_SP[pairs]) / 2
    exact_P = sum(exact_gradient(world) for world in worlds) / 2
    close(estimate_P, exact_P * (1.0 if leave_one_out else 0.5))
