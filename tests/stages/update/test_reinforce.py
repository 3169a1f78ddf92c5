"""The REINFORCE loss by hand, and its denominator."""

import pytest
import torch

from stages.update.reinforce import reinforce_loss


@pytest.mark.parametrize(("logp", "advantage", "term"), [(-0.5, 1.0, 0.5), (-1.0, -1.0, -1.0), (-1.5, 2.0, 3.0)])
def test_loss_terms_of_the_design(logp, advantage, term):
    assert reinforce_loss(torch.tensor([logp]), torch.tensor([advantage]), 1).item() == pytest.approx(term)


def test_tokens_are_summed_and_sequences_averaged():
    # rows: A = 2 with log-probs -1, -2, -3; A = -1 with log-prob -4; (-(2 * -6) - (-1 * -4)) / 2 = (12 - 4) / 2
    logp = torch.tensor([-1.0, -2.0, -3.0, -4.0])
    advantage = torch.tensor([2.0, 2.0, 2.0, -1.0])
    assert reinforce_loss(logp, advantage, 2).item() == pytest.approx(4.0)


def test_shares_of_micro_batches_add_up_to_the_loss():
    logp, advantage = torch.randn(10, dtype=torch.float64), torch.randn(10, dtype=torch.float64)
    whole = reinforce_loss(logp, advantage, 4)
    parts = [reinforce_loss(logp[a:b], advantage[a:b], 4) for a, b in ((0, 1), (1, 7), (7, 10))]
    torch.testing.assert_close(sum(parts), whole)


def test_gradient_is_minus_the_advantage_over_the_rows():
    logp = torch.tensor([-1.0, -2.0], requires_grad=True)
    reinforce_loss(logp, torch.tensor([3.0, -5.0]), 4).backward()
    assert logp.grad.tolist() == [-0.75, 1.25]
