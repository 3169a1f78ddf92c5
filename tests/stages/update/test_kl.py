"""KL inside the loss: the design's values, and what each estimator's gradient is in expectation."""

import math

import pytest
import torch

from stages.common.params import Kl
from stages.update.kl import estimate, kl_terms
from tests.stages.update.tokens import tokens_of

POLICY = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
REFERENCE = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("k1", [-1, 14, 29]), ("k2", [0.5, 98, 420.5]), ("k3", [0.718281828, 13.000000832, 28])],
)
def test_values_of_the_design(estimator, expected):
    logp, ref = torch.full((3,), -1.0, dtype=torch.float64), torch.tensor([0.0, -15.0, -30.0], dtype=torch.float64)
    assert estimate(logp - ref, estimator).tolist() == pytest.approx(expected, abs=1e-6)


def expectation(estimator):
    """Value and gradient with respect to the logits, by enumeration of the three tokens."""
    logits = POLICY.log().requires_grad_()
    logp = logits.log_softmax(dim=0)
    terms = estimate(logp - REFERENCE.log(), estimator)
    value = (POLICY * terms).sum()
    return value.item(), torch.autograd.grad(value, logits)[0]


def exact(backwards=False):
    """KL(pi || pi_ref), or the other way round, and its gradient."""
    logits = POLICY.log().requires_grad_()
    logp, ref = logits.log_softmax(dim=0), REFERENCE.log()
    kl = (ref.exp() * (ref - logp)).sum() if backwards else (logp.exp() * (logp - ref)).sum()
    return kl.item(), torch.autograd.grad(kl, logits)[0]


def test_k1_is_unbiased_and_its_gradient_is_zero():
    value, gradient = expectation("k1")
    assert value == pytest.approx(exact()[0])
    assert gradient.abs().max() < 1e-12


def test_gradient_of_k2_is_that_of_the_kl():
    value, gradient = expectation("k2")
    torch.testing.assert_close(gradient, exact()[1], rtol=0, atol=1e-12)
    assert abs(value - exact()[0]) > 1e-3


def test_k3_is_unbiased_and_its_gradient_is_that_of_the_kl_the_other_way_round():
    value, gradient = expectation("k3")
    assert value == pytest.approx(exact()[0])
    torch.testing.assert_close(gradient, exact(backwards=True)[1], rtol=0, atol=1e-12)
    assert (gradient - exact()[1]).abs().max() > 1e-3


@pytest.mark.parametrize("estimator", ["k1", "k3"])
@pytest.mark.parametrize("sampler", [POLICY, torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)], ids=["on", "off"])
def test_weighted_by_the_ratio_the_gradient_is_that_of_the_kl_on_policy_and_off(estimator, sampler):
    logits = POLICY.log().requires_grad_()
    logp = logits.log_softmax(dim=0)
    weighted = (sampler * estimate(logp - REFERENCE.log(), estimator) * (logp - sampler.log()).exp()).sum()
    (gradient,) = torch.autograd.grad(weighted, logits)
    assert weighted.item() == pytest.approx(exact()[0])
    torch.testing.assert_close(gradient, exact()[1], rtol=0, atol=1e-12)


def test_terms_with_and_without_the_ratio():
    tokens = tokens_of([[-1.0, -2.0]], [[-1.5, -1.0]], [0.0])  # ratios e^.5, e^-1
    ref = torch.tensor([-2.0, -2.5], dtype=torch.float64)  # k1: 1, .5
    plain = Kl(beta=1.0, placement="loss")
    assert kl_terms(tokens, ref, plain).tolist() == pytest.approx([1, 0.5])
    weighted = plain.model_copy(update={"importance_weighted": True})
    assert kl_terms(tokens, ref, weighted).tolist() == pytest.approx([math.exp(0.5), 0.5 * math.exp(-1)])
