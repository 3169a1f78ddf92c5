"""Reductions by hand; what a micro-batch, a long row and a row outside of it change."""

import pytest
import torch

from stages.common.params import Update
from stages.update.reduction import Totals, reduce_terms
from tests.stages.update.tokens import tokens_of

TERMS = [[1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0]]
TOTALS = Totals(rows=3, tokens=7, constant_length=10)
EXPECTED = {
    "sequence_sum": (3 + 12 + 13) / 3,
    "response_mean": (1.5 + 4 + 6.5) / 3,
    "token_mean": 4.0,  # 28 / 7: not 3.25, the mean of the means of micro-batches [1, 2] | [3, 4, 5], [6, 7]
    "constant_length": 28 / (3 * 10),
}


def reduced(terms, reduction, totals=TOTALS, of_sequences=False):
    tokens = tokens_of(terms, terms, [0.0] * len(terms))
    update = Update(reduction=reduction, learning_rate=1.0, max_grad_norm=1.0)
    return reduce_terms(tokens.logp_T, tokens, update, totals, of_sequences=of_sequences).item()


@pytest.mark.parametrize("reduction", EXPECTED)
def test_by_hand(reduction):
    assert reduced(TERMS, reduction) == pytest.approx(EXPECTED[reduction], abs=1e-12)


@pytest.mark.parametrize("reduction", EXPECTED)
@pytest.mark.parametrize("split", [1, 2])
def test_shares_of_micro_batches_add_up(reduction, split):
    shares = reduced(TERMS[:split], reduction) + reduced(TERMS[split:], reduction)
    assert shares == pytest.approx(EXPECTED[reduction], abs=1e-12)


@pytest.mark.parametrize("reduction", EXPECTED)
def test_rows_without_gradient_keep_their_place_in_the_denominator(reduction):
    assert reduced(TERMS[:2], reduction) == pytest.approx(reduced([*TERMS[:2], [0.0, 0.0]], reduction), abs=1e-12)


def test_terms_of_sequences():
    # a term of 2 for the row of two tokens, 5 for that of three
    terms, totals = [[2.0] * 2, [5.0] * 3], Totals(2, 5, 10)
    found = {name: reduced(terms, name, totals, of_sequences=True) for name in EXPECTED}
    assert found == {
        "sequence_sum": pytest.approx((2 + 5) / 2),
        "response_mean": pytest.approx((2 + 5) / 2),
        "token_mean": pytest.approx((2 * 2 + 3 * 5) / 5),
        "constant_length": pytest.approx((2 * 2 + 3 * 5) / 20),
    }


def test_gradients_say_how_much_a_token_of_a_long_row_counts():
    tokens = tokens_of([[0.0], [0.0] * 4], [[0.0], [0.0] * 4], [0.0, 0.0])
    for reduction, short, long in (
        ("sequence_sum", 1 / 2, 1 / 2),
        ("response_mean", 1 / 2, 1 / 8),
        ("token_mean", 1 / 5, 1 / 5),
        ("constant_length", 1 / 20, 1 / 20),
    ):
        update = Update(reduction=reduction, learning_rate=1.0, max_grad_norm=1.0)
        loss = reduce_terms(tokens.logp_T, tokens, update, Totals(2, 5, 10), of_sequences=False)
        (gradient,) = torch.autograd.grad(loss, tokens.logp_T)
        assert gradient.tolist() == pytest.approx([short] + [long] * 4)
