"""Exactness by enumeration: the expectation of the estimator over all K-tuples is the gradient of E[r] - beta KL.

A tabular policy of 3 tokens and length 2 has 9 sequences, so 81 pairs and 729 triples. No Monte Carlo.
"""

import itertools

import polars as pl
import pytest
import torch

from stages.advantage.batch_mean import batch_mean
from stages.advantage.dr_grpo import dr_grpo
from stages.advantage.grpo import grpo
from stages.advantage.max_rl import max_rl
from stages.advantage.opo import opo
from stages.advantage.reinforce import reinforce
from stages.advantage.reinforce_pp import reinforce_pp
from stages.advantage.rloo import rloo
from stages.score.kl import add_kl, add_score
from tests.stages.update.tokens import reinforce_loss

TOKENS, LENGTH = 3, 2
SEQUENCES = list(itertools.product(range(TOKENS), repeat=LENGTH))
REWARD = torch.tensor([0.3, 1.0, 0.0, 0.7, 0.2, 0.0, 1.0, 0.1, 0.5], dtype=torch.float64)


def tabular_policy(seed: int) -> torch.Tensor:
    """Logits of the first token (row 0) and of the second after each first (rows 1 to 3)."""
    return torch.randn(1 + TOKENS, TOKENS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def token_logprobs(theta: torch.Tensor) -> torch.Tensor:
    """[9 sequences, 2 tokens]."""
    logp = theta.log_softmax(dim=-1)
    return torch.stack([torch.stack([logp[0, a], logp[1 + a, b]]) for a, b in SEQUENCES])


def exact_gradient(theta: torch.Tensor, reference: torch.Tensor, beta: float) -> torch.Tensor:
    theta = theta.clone().requires_grad_()
    logp = token_logprobs(theta).sum(dim=1)
    kl = (logp.exp() * (logp - token_logprobs(reference).sum(dim=1))).sum()
    objective = (logp.exp() * REWARD).sum() - beta * kl
    return torch.autograd.grad(objective, theta)[0]


def all_tuples(theta: torch.Tensor, reference: torch.Tensor, beta: float, k: int) -> pl.DataFrame:
    """One group for each K-tuple of sequences, scored by the pipeline's own functions."""
    logp, ref = token_logprobs(theta).tolist(), token_logprobs(reference).tolist()
    rows = [
        {"iteration": number, "prompt_id": "x", "sample": place, "sequence": sequence}
        for number, picks in enumerate(itertools.product(range(len(SEQUENCES)), repeat=k))
        for place, sequence in enumerate(picks)
    ]
    frame = pl.DataFrame(rows).with_columns(
        sampler_logprobs=pl.Series([logp[row["sequence"]] for row in rows]),
        ref_logprobs=pl.Series([ref[row["sequence"]] for row in rows]),
        task_reward=pl.Series([REWARD[row["sequence"]].item() for row in rows]),
        length=pl.Series([1 + row["sequence"] % 4 for row in rows]),  # made up, for the estimator that weighs by it
    )
    return add_score(add_kl(frame), beta)


def expected_gradient(theta: torch.Tensor, advantages: pl.DataFrame, k: int) -> torch.Tensor:
    """Minus the expected gradient of the loss: each tuple's, weighted by the tuple's probability."""
    theta = theta.clone().requires_grad_()
    logp_ST = token_logprobs(theta)
    sequence_TK = torch.tensor(advantages["sequence"].to_list()).view(-1, k)
    advantage_TK = torch.tensor(advantages["advantage"].to_list(), dtype=torch.float64).view(-1, k)
    probability = logp_ST.detach().sum(dim=1)[sequence_TK].sum(dim=1).exp()
    loss = sum(
        p * reinforce_loss(logp_ST[picks], a)
        for p, picks, a in zip(probability, sequence_TK, advantage_TK, strict=True)
    )
    return -torch.autograd.grad(loss, theta)[0]


UNBIASED = {
    "rloo": rloo,
    "reinforce": reinforce,
    "batch_mean, left out": lambda frame: batch_mean(frame, leave_one_out=True),
}
SHRUNK = {"dr_grpo": dr_grpo, "batch_mean": lambda frame: batch_mean(frame, leave_one_out=False)}
REWEIGHTED = {
    "grpo, population": lambda frame: grpo(frame, std="population"),
    "grpo, sample": lambda frame: grpo(frame, std="sample"),
    "reinforce_pp": lambda frame: reinforce_pp(frame, baseline="batch"),
    "max_rl": max_rl,
    "opo": opo,
}


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_with_kl_in_the_reward(name, k, beta):
    theta, reference = tabular_policy(0), tabular_policy(1)
    found = expected_gradient(theta, UNBIASED[name](all_tuples(theta, reference, beta, k)), k)
    torch.testing.assert_close(found, exact_gradient(theta, reference, beta), rtol=0, atol=1e-10)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", SHRUNK)
def test_a_baseline_that_includes_the_sample_shrinks_the_gradient_by_exactly_k_minus_1_over_k(name, k):
    theta, reference = tabular_policy(0), tabular_policy(1)
    found = expected_gradient(theta, SHRUNK[name](all_tuples(theta, reference, 0.3, k)), k)
    exact = exact_gradient(theta, reference, 0.3)
    torch.testing.assert_close(found, exact * (k - 1) / k, rtol=0, atol=1e-10)
    assert (found - exact).abs().max() > 1e-3


@pytest.mark.parametrize("name", REWEIGHTED)
def test_reweighted_gradients_are_no_multiple_of_the_exact_one(name):
    theta, reference = tabular_policy(0), tabular_policy(1)
    found = expected_gradient(theta, REWEIGHTED[name](all_tuples(theta, reference, 0.0, 3)), 3)
    exact = exact_gradient(theta, reference, 0.0)
    along = (found * exact).sum() / (exact * exact).sum()
    assert (found - along * exact).norm() > 1e-3 * exact.norm()


@pytest.mark.parametrize("k", [2, 3])
def test_variance_of_the_advantage_is_that_of_the_score_times_k_over_k_minus_1(k):
    theta, reference = tabular_policy(0), tabular_policy(1)
    table = rloo(all_tuples(theta, reference, 0.3, k))
    logp = token_logprobs(theta).sum(dim=1)
    weight = logp[torch.tensor(table["sequence"].to_list()).view(-1, k)].sum(dim=1).exp()
    first = table.filter(pl.col("sample") == 0)
    advantage = torch.tensor(first["advantage"].to_list(), dtype=torch.float64)
    score = torch.tensor(first["score"].to_list(), dtype=torch.float64)
    baseline = torch.tensor(first["baseline"].to_list(), dtype=torch.float64)

    def covariance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (weight * (a - (weight * a).sum()) * (b - (weight * b).sum())).sum()

    torch.testing.assert_close(covariance(advantage, advantage), covariance(score, score) * k / (k - 1))
    assert abs(covariance(score, baseline)) < 1e-12
