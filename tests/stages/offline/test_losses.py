"""Losses of pairs as hand tables: values, gradients, and what their options say."""

import math

import pytest
import torch

from stages.common.params import Dpo, Offline, Simpo
from stages.offline import dpo, simpo
from stages.offline.objective import Answers, terms_of

LOG2 = math.log(2)


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def of_dpo(logp, reference, **options):
    """Difference, loss and gradient by the log-probs of one pair."""
    logp_P2, settings = torch.tensor([logp], requires_grad=True), Dpo(**options)
    difference_P = dpo.differences(logp_P2, torch.tensor([reference]), settings)
    loss_P = dpo.losses(difference_P, settings)
    return difference_P.item(), loss_P.item(), torch.autograd.grad(loss_P.sum(), logp_P2)[0][0].tolist()


def of_simpo(logp, lengths, **options):
    logp_P2, settings = torch.tensor([logp], requires_grad=True), Simpo(**options)
    difference_P = simpo.differences(logp_P2, torch.tensor([lengths]), settings)
    loss_P = simpo.losses(difference_P, settings)
    return difference_P.item(), loss_P.item(), torch.autograd.grad(loss_P.sum(), logp_P2)[0][0].tolist()


# sigmoid(-1) = .268941, sigmoid(1) = .731059, sigmoid(.5) = .622459; -log of them 1.313262, .313262, .474077
DPO = [  # log-probs, of the reference, options -> difference, loss, gradient by the chosen answer's log-prob
    ([-10.0, -12.0], [-10.0, -12.0], {}, 0.0, 0.693147, -0.05),  # -beta * sigmoid(0)
    ([-8.0, -14.0], [-10.0, -11.0], {"beta": 0.2}, 1.0, 0.313262, -0.0537883),  # .2 * (2 + 3); -.2 * .268941
    ([-14.0, -8.0], [-11.0, -10.0], {"beta": 0.2}, -1.0, 1.313262, -0.1462117),  # -.2 * .731059
    ([-8.0, -14.0], [-10.0, -11.0], {"beta": 0.1}, 0.5, 0.474077, -0.0377541),  # -.1 * .377541
    # .9 * .313262 + .1 * 1.313262 = .413262;  -.2 * (.9 * .268941 - .1 * .731059) = -.2 * .168941
    ([-8.0, -14.0], [-10.0, -11.0], {"beta": 0.2, "label_smoothing": 0.1}, 1.0, 0.413262, -0.0337883),
]


@pytest.mark.parametrize(("logp", "reference", "options", "difference", "loss", "gradient"), DPO)
def test_dpo_by_hand(logp, reference, options, difference, loss, gradient):
    found = of_dpo(logp, reference, **options)
    assert found[:2] == pytest.approx((difference, loss), abs=1e-6)
    assert found[2] == pytest.approx([gradient, -gradient], abs=1e-7)


def test_dpo_starts_at_log_2_whatever_its_options():
    for options in ({}, {"beta": 5.0}, {"label_smoothing": 0.3}):
        assert of_dpo([-3.0, -9.0], [-3.0, -9.0], **options)[:2] == pytest.approx((0.0, LOG2))


@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0])
def test_beta_scales_the_implicit_reward(beta):
    assert of_dpo([-8.0, -14.0], [-10.0, -11.0], beta=beta)[0] == pytest.approx(5 * beta)


def test_dpo_knows_ratios_alone():
    """What is likelier to begin with has no advantage: a shift of policy and reference together changes nothing."""
    for found, expected in zip(
        of_dpo([-8.0, -14.0], [-10.0, -11.0]), of_dpo([-58.0, -15.0], [-60.0, -12.0]), strict=True
    ):
        assert found == pytest.approx(expected)


def test_smoothing_stops_pushing_where_the_odds_are_those_of_the_labels():
    odds = math.log(0.9 / 0.1)
    ahead = of_dpo([odds + 1, 0.0], [0.0, 0.0], beta=1.0, label_smoothing=0.1)[2][0]
    at_odds = of_dpo([odds, 0.0], [0.0, 0.0], beta=1.0, label_smoothing=0.1)[2][0]
    assert at_odds == pytest.approx(0.0, abs=1e-12)
    assert ahead > 0 > of_dpo([odds + 1, 0.0], [0.0, 0.0], beta=1.0)[2][0]


SIMPO = [  # log-probs, lengths, options -> difference, loss, gradient by each log-prob
    # 2 * (-4/4 + 9/6) = 1, less margin 1: log 2;  -2/4 * .5, 2/6 * .5
    ([-4.0, -9.0], [4, 6], {}, 1.0, 0.693147, [-0.25, 0.1666667]),
    ([-4.0, -9.0], [4, 6], {"margin": 0.0}, 1.0, 0.313262, [-0.1344707, 0.0896471]),  # .268941 / 2, / 3
    ([-4.0, -9.0], [4, 6], {"margin": 2.0}, 1.0, 1.313262, [-0.3655293, 0.2436862]),  # .731059 / 2, / 3
    ([-4.0, -9.0], [4, 6], {"beta": 1.0, "margin": 0.0}, 0.5, 0.474077, [-0.0943852, 0.0629235]),  # .377541 / 4, / 6
]


@pytest.mark.parametrize(("logp", "lengths", "options", "difference", "loss", "gradient"), SIMPO)
def test_simpo_by_hand(logp, lengths, options, difference, loss, gradient):
    found = of_simpo(logp, lengths, **options)
    assert found[:2] == pytest.approx((difference, loss), abs=1e-6)
    assert found[2] == pytest.approx(gradient, abs=1e-7)


def test_simpo_prefers_what_is_likelier_per_token_and_not_in_all():
    """The long answer is less likely as a whole (-12 against -10) and likelier per token (-1 against -2)."""
    assert of_simpo([-12.0, -10.0], [12, 5])[0] == pytest.approx(2.0)
    assert of_simpo([-12.0, -10.0], [12, 12])[0] < 0


def test_an_answer_twice_as_long_at_the_same_mean_has_the_same_reward():
    assert of_simpo([-4.0, -9.0], [4, 6])[0] == pytest.approx(of_simpo([-8.0, -9.0], [8, 6])[0])


def test_accuracy_counts_a_tie_half():
    logp_P2 = torch.tensor([[-1.0, -2.0], [-2.0, -1.0], [-1.5, -1.5]])
    settings = Offline(objective="simpo", pairs="toy", learning_rate=1e-3)
    assert terms_of(Answers(logp_P2, torch.ones(3, 2)), settings).right.tolist() == [1.0, 0.0, 0.5]


def test_dpo_without_a_reference_is_a_mistake_of_the_caller():
    settings = Offline(objective="dpo", pairs="toy", learning_rate=1e-3)
    with pytest.raises(AssertionError, match="reference"):
        terms_of(Answers(torch.zeros(1, 2), torch.ones(1, 2)), settings)
