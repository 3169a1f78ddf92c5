"""Every objective by hand: values, gradients at ratio 1, what is clipped, and the ratios of whole sequences."""

import math

import pytest

from stages.common.params import Cispo, Gspo, Ppo, Sapo, Update
from stages.update.cispo import cispo
from stages.update.gspo import gspo
from stages.update.objective import objective_terms
from stages.update.ppo import ppo
from stages.update.reduction import Totals, reduce_terms
from stages.update.reinforce import reinforce
from stages.update.sapo import sapo
from tests.stages.update.tokens import tokens_of


def one_token_rows(ratios, advantages):
    """Rows of one token each, with the given ratios."""
    return tokens_of([[math.log(ratio) - 1] for ratio in ratios], [[-1.0]] * len(ratios), advantages)


def values(terms):
    return terms.loss_T.tolist()


@pytest.mark.parametrize(("logp", "advantage", "term"), [(-0.5, 1.0, 0.5), (-1.0, -1.0, -1.0), (-1.5, 2.0, 3.0)])
def test_reinforce_terms_of_the_design(logp, advantage, term):
    assert values(reinforce(tokens_of([[logp]], [[logp]], [advantage]))) == [pytest.approx(term)]


def test_ppo_terms_of_the_design():
    # clip .2: A 1, r .5: min(.5, .8) = .5; A -1, r 1: -1; A 2, r 1.5: min(3, 1.2 * 2) = 2.4
    terms = ppo(one_token_rows([0.5, 1, 1.5], [1.0, -1.0, 2.0]), Ppo())
    assert values(terms) == pytest.approx([-0.5, 1, -2.4])
    assert terms.clipped_low_T.tolist() == [False, False, False]  # .5 is below the range, but A > 0: not clipped
    assert terms.clipped_high_T.tolist() == [False, False, True]


def test_dual_clip_of_the_design_bounds_negative_advantages_only():
    # A -4, r 10: min(-40, 1.2 * -4) = -40, not below 3 * -4; A 4, r 10: 1.2 * 4
    tokens = one_token_rows([10, 10], [-4.0, 4.0])
    assert values(ppo(tokens, Ppo(dual_clip=3.0))) == pytest.approx([12, -4.8])
    assert values(ppo(tokens, Ppo())) == pytest.approx([40, -4.8])


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "low", "high"),
    [
        (1.25, 1.0, 1.25, False, False),  # within 1 + .28
        (1.30, 1.0, 1.28, False, True),
        (1.30, -1.0, -1.30, False, False),  # the worse of both counts
        (0.70, 1.0, 0.70, False, False),
        (0.70, -1.0, -0.80, True, False),
        (0.85, -1.0, -0.85, False, False),
    ],
)
def test_asymmetric_clip(ratio, advantage, gain, low, high):
    terms = ppo(one_token_rows([ratio], [advantage]), Ppo(clip_low=0.2, clip_high=0.28))
    assert values(terms) == [pytest.approx(-gain)]
    assert terms.clipped_low_T.tolist() == [low]
    assert terms.clipped_high_T.tolist() == [high]


REDUCTIONS = ("sequence_sum", "response_mean", "token_mean", "constant_length")
LOGP = [[-1.0, -2.0, -0.5], [-3.0, -1.5]]
OLD = [[-1.1, -1.8, -0.7], [-2.9, -1.2]]  # log-ratios .1, -.2, .2, sum .1; -.1, -.3, sum -.4
ADVANTAGE = [2.0, -1.0]


def test_ppo_of_sequences_has_the_product_of_the_ratios_on_each_token():
    terms = ppo(tokens_of(LOGP, OLD, ADVANTAGE), Ppo(ratio="sequence", clip_low=0.5, clip_high=0.5))
    # e^-.4 = .670 is within [.5, 1.5]
    assert values(terms) == pytest.approx([-2 * math.exp(0.1)] * 3 + [math.exp(-0.4)] * 2)
    assert terms.of_sequences
    clipped = ppo(tokens_of(LOGP, OLD, ADVANTAGE), Ppo(ratio="sequence"))
    assert values(clipped)[3:] == pytest.approx([0.8] * 2)  # min(-.670, -.8)


def test_gspo_has_the_geometric_mean_of_the_ratios():
    # .1 / 3 = .033 and -.4 / 2 = -.2
    terms = gspo(tokens_of(LOGP, OLD, ADVANTAGE), Gspo(clip_low=0.5, clip_high=0.02))
    assert values(terms) == pytest.approx([-2 * 1.02] * 3 + [math.exp(-0.2)] * 2)
    assert terms.clipped_high_T.tolist() == [True] * 3 + [False] * 2
    assert terms.of_sequences


def test_cispo_weighs_log_probs_by_the_clipped_ratio():
    tokens = one_token_rows([0.5, 3.0, 1.1], [1.0, -2.0, 3.0])
    terms = cispo(tokens, Cispo(clip_low=0.2, clip_high=1.0))
    logp = tokens.logp_T.tolist()
    assert values(terms) == pytest.approx([-0.8 * logp[0], 2 * 2.0 * logp[1], -1.1 * 3 * logp[2]])
    assert terms.clipped_low_T.tolist() == [True, False, False]
    assert terms.clipped_high_T.tolist() == [False, True, False]
    terms.loss_T.sum().backward()
    assert tokens.logp_T.grad.tolist() == pytest.approx([-0.8, 4.0, -3.3])  # clipped tokens keep their gradient
    assert values(cispo(tokens, Cispo(clip_high=1.0)))[0] == pytest.approx(-0.5 * logp[0])


def test_sapo_by_hand():
    # r = 1: 4 / tau * 1/2 * A; r = 2, tau 1: 4 / (1 + e^-1)
    tokens = one_token_rows([1, 1, 2], [1.0, -1.0, 1.0])
    terms = sapo(tokens, Sapo(temperature_positive=1.0, temperature_negative=2.0))
    assert values(terms) == pytest.approx([-2, 1, -4 / (1 + math.exp(-1))])
    terms.loss_T.sum().backward()
    # 4 s (1 - s) r A, s = sigmoid(1) = .731: 4 * .731 * .269 * 2
    s = 1 / (1 + math.exp(-1))
    assert tokens.logp_T.grad.tolist() == pytest.approx([-1, 1, -8 * s * (1 - s)])


def test_objectives_take_an_advantage_of_each_token():
    tokens = tokens_of([[-1.0, -2.0]], [[-1.0, -2.0]], [[3.0, -4.0]])
    assert values(reinforce(tokens)) == [3.0, -8.0]
    assert values(ppo(tokens, Ppo())) == [-3.0, 4.0]


BY_SEQUENCE = {"ppo": Ppo(ratio="sequence")}
TOGETHER = [
    *((name, {}, reduction) for name in ("ppo", "cispo", "sapo") for reduction in REDUCTIONS),
    ("ppo", BY_SEQUENCE, "sequence_sum"),
    *(("gspo", {}, reduction) for reduction in REDUCTIONS if reduction != "sequence_sum"),
]


@pytest.mark.parametrize(("name", "options", "reduction"), TOGETHER)
def test_on_policy_the_gradient_of_reinforce_under_the_same_reduction(name, options, reduction):
    """Rows of three and of two tokens, so that reductions differ."""
    raw = {"objective": name, "reduction": reduction, "learning_rate": 1.0, "max_grad_norm": 1.0, **options}
    found = {}
    for update in (Update(**raw), Update(**raw | {"objective": "reinforce"})):
        tokens = tokens_of(LOGP, LOGP, ADVANTAGE)
        terms = objective_terms(tokens, update)
        reduce_terms(terms.loss_T, tokens, update, Totals(2, 5, 7), of_sequences=terms.of_sequences).backward()
        found[update.objective] = tokens.logp_T.grad.tolist()
    assert found[name] == pytest.approx(found["reinforce"])
