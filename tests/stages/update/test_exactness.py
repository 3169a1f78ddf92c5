"""Objectives by enumeration: the expected gradient over all pairs of samples, on-policy and off it.

With leave-one-out advantages the sample's ratio and its baseline are independent, so that importance weights of whole
sequences give the exact gradient whichever policy sampled. Ratios of single tokens do not, and neither does a clip.
"""

import itertools

import pytest
import torch

from stages.advantage.rloo import rloo
from stages.common.params import ImportanceCorrection, Ppo, Sapo, Update
from stages.enumeration.tabular import LENGTH, SEQUENCES, Tabular, exact_gradient, groups, token_logprobs
from stages.update.importance import importance_weights
from stages.update.objective import objective_terms
from stages.update.reduction import Totals, reduce_terms
from stages.update.tokens import Tokens

K = 2
REWARD = torch.tensor([0.3, 1.0, 0.0, 0.7, 0.2, 0.0, 1.0, 0.1, 0.5], dtype=torch.float64)
PICKS = torch.tensor(list(itertools.product(range(len(SEQUENCES)), repeat=K)))


def logits(seed):
    return torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) / 2


POLICY, OTHER = logits(0), logits(1)
UNCLIPPED = {"clip_low": 1.0, "clip_high": 1e9}


def update(objective="reinforce", **options):
    return Update(objective=objective, learning_rate=1.0, max_grad_norm=1.0, **options)


def expected_gradient(options, sampler):
    """Minus the expected gradient of the loss for the policy, over all pairs that the sampler draws."""
    theta = POLICY.clone().requires_grad_()
    logp_ST, sampled_ST = token_logprobs(theta), token_logprobs(sampler)
    world = Tabular(sampler, sampler, REWARD, 0.0)
    table = rloo(groups(world, PICKS)).sort("iteration", "sample")
    advantage_MK = torch.tensor(table["advantage"].to_list(), dtype=torch.float64).view(-1, K)
    corrected = options.importance_correction
    loss = 0.0
    for picks, advantage_K in zip(PICKS, advantage_MK, strict=True):
        logp_T, sampler_T = logp_ST[picks].flatten(), sampled_ST[picks].flatten()
        tokens = Tokens(
            logp_T=logp_T,
            old_T=logp_T.detach() if corrected else sampler_T,
            advantage_T=advantage_K.repeat_interleave(LENGTH),
            row_T=torch.arange(K).repeat_interleave(LENGTH),
            length_R=torch.full((K,), LENGTH),
        )
        terms = objective_terms(tokens, options)
        weight_T = importance_weights(tokens, sampler_T, corrected)[0] if corrected else 1.0
        totals = Totals(K, K * LENGTH, LENGTH)
        share = reduce_terms(terms.loss_T * weight_T, tokens, options, totals, of_sequences=terms.of_sequences)
        loss = loss + sampler_T.sum().exp() * share
    return -torch.autograd.grad(loss, theta)[0].flatten()


EXACT = exact_gradient(Tabular(POLICY, POLICY, REWARD, 0.0))


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        (update(), 1),
        (update("ppo"), 1),
        (update("ppo", ppo=Ppo(ratio="sequence")), 1),
        (update("cispo"), 1),
        (update("sapo", sapo=Sapo(temperature_positive=2.0)), 1),
        (update("gspo", reduction="response_mean"), 1 / LENGTH),  # a mean over tokens
        (update(reduction="response_mean"), 1 / LENGTH),
        (update(reduction="token_mean"), 1 / LENGTH),
        (update("ppo", reduction="constant_length"), 1 / LENGTH),
    ],
    ids=lambda value: f"{value.objective} {value.reduction}" if isinstance(value, Update) else "",
)
def test_on_policy_every_objective_is_exact_up_to_the_constant_of_its_reduction(options, factor):
    torch.testing.assert_close(expected_gradient(options, POLICY), EXACT * factor, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        update("ppo", ppo=Ppo(ratio="sequence", **UNCLIPPED)),
        update(importance_correction=ImportanceCorrection(form="truncate", level="sequence", cap=1e9)),
        update(importance_correction=ImportanceCorrection(form="mask", level="sequence", cap=1e9)),
    ],
    ids=["sequence ratio", "truncated weights", "masked weights"],
)
def test_off_policy_weights_of_whole_sequences_are_exact(options):
    torch.testing.assert_close(expected_gradient(options, OTHER), EXACT, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        update(),
        update("ppo", ppo=Ppo(ratio="token", **UNCLIPPED)),
        update("ppo", ppo=Ppo(ratio="sequence")),
        update("cispo", reduction="sequence_sum"),
        update("sapo"),
        update(importance_correction=ImportanceCorrection(form="truncate", level="token", cap=1e9)),
        update(importance_correction=ImportanceCorrection(form="truncate", level="sequence", cap=1.01)),
        update(importance_correction=ImportanceCorrection(form="mask", level="sequence", cap=1.01)),
    ],
    ids=["no ratio", "token ratio", "clipped", "cispo", "sapo", "token weights", "truncated", "masked"],
)
def test_off_policy_nothing_else_is(options):
    assert (expected_gradient(options, OTHER) - EXACT).norm() > 1e-2 * EXACT.norm()
