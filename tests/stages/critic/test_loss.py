"""The value loss as a hand table, with its gradient."""

import pytest
import torch

from stages.critic.loss import value_losses

HAND = [  # value, return, loss, gradient, clipped: the value that gave the advantages was 1, the clip is .2
    (1.1, 2.0, 0.5 * 0.9**2, -0.9, False),  # within the clip
    (1.5, 2.0, 0.5 * 0.8**2, 0.0, True),  # has moved enough towards its return: held at 1.2
    (1.5, 1.0, 0.5 * 0.5**2, 0.5, False),  # has moved away from it: held at 1.2 it would be better, the worse counts
    (0.5, 2.0, 0.5 * 1.5**2, -1.5, False),
    (0.5, 0.4, 0.5 * 0.4**2, 0.0, True),  # held at .8
]


@pytest.mark.parametrize(("value", "target", "loss", "gradient", "clipped"), HAND)
def test_clipped(value, target, loss, gradient, clipped):
    value_T = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    found_T, clipped_T = value_losses(value_T, torch.tensor([target]).double(), torch.ones(1).double(), 0.2)
    found_T.sum().backward()
    assert found_T.item() == pytest.approx(loss)
    assert value_T.grad.item() == pytest.approx(gradient, abs=1e-12)
    assert clipped_T.tolist() == [clipped]


@pytest.mark.parametrize(("value", "target"), [(value, target) for value, target, *_ in HAND])
def test_plain(value, target):
    value_T = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    found_T, clipped_T = value_losses(value_T, torch.tensor([target]).double(), torch.ones(1).double(), None)
    found_T.sum().backward()
    assert found_T.item() == pytest.approx(0.5 * (value - target) ** 2)
    assert value_T.grad.item() == pytest.approx(value - target)
    assert not clipped_T.any()
