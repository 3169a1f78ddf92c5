"""The Bradley-Terry loss against values worked out by hand, its gradient, margin and centring."""

import math

import pytest
import torch

from stages.reward_model.loss import pair_losses


def losses(chosen, rejected, margin=0.0, centring=0.0):
    to = lambda values: torch.tensor(values, dtype=torch.float64)
    return pair_losses(to(chosen), to(rejected), torch.full((len(chosen),), margin, dtype=torch.float64), centring)


@pytest.mark.parametrize(
    ("chosen", "rejected", "expected"),
    [
        (0.0, 0.0, 0.693147),  # log 2
        (1.0, 0.0, 0.313262),  # log(1 + 1/e)
        (0.0, 1.0, 1.313262),  # log(1 + e)
        (2.5, 0.5, 0.126928),
        (-3.0, -3.0, 0.693147),
        (0.0, 200.0, 200.0),  # no overflow
    ],
)
def test_loss_by_hand(chosen, rejected, expected):
    assert losses([chosen], [rejected]).item() == pytest.approx(expected, abs=1e-6)


def test_gradient_is_the_probability_of_the_wrong_order():
    """d/dr_chosen of -log sigmoid(d) is -(1 - sigmoid(d)); of r_rejected, its opposite."""
    chosen = torch.tensor([0.0, 1.0, -2.0], requires_grad=True)
    rejected = torch.tensor([0.0, 0.0, 0.0], requires_grad=True)
    torch.autograd.backward(pair_losses(chosen, rejected, torch.zeros(3), 0.0).sum())
    assert chosen.grad.tolist() == pytest.approx([-0.5, -0.268941, -0.880797], abs=1e-6)
    assert rejected.grad.tolist() == pytest.approx([0.5, 0.268941, 0.880797], abs=1e-6)


def test_margin_is_taken_off_the_difference():
    assert losses([3.0], [1.0], margin=2.0).item() == pytest.approx(math.log(2))
    assert losses([3.0], [1.0], margin=1.0).item() == pytest.approx(0.313262, abs=1e-6)


def test_centring_adds_the_square_of_the_sum():
    assert losses([2.0], [1.0], centring=0.01).item() == pytest.approx(0.313262 + 0.09, abs=1e-6)
    assert losses([0.5], [-0.5], centring=0.01).item() == pytest.approx(0.313262, abs=1e-6)


def test_one_loss_per_pair():
    assert losses([0.0, 1.0], [0.0, 0.0]).tolist() == pytest.approx([0.693147, 0.313262], abs=1e-6)
