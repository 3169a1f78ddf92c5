"""Accuracy, gold accuracy and calibration, worked out by hand."""

import numpy as np
import polars as pl
import pytest

from stages.reward_model.measure import calibration, gold_accuracy, pair_metrics, probability, share_right
from tests.stages.reward_model.toy import table


def test_a_tie_is_half_right():
    assert share_right(np.array([1.0, -1.0, 0.0, 2.0])) == 0.625


def test_probability_is_the_sigmoid_without_overflow():
    assert probability(np.array([0.0, 1.0, -800.0, 800.0])) == pytest.approx([0.5, 0.731059, 0.0, 1.0], abs=1e-6)


def test_calibration_by_hand():
    """Bins .2-.3 (mean .25, 1 of 2) and .9-1 (mean .96, 2 of 3), so (2 * .25 + 3 * .2933) / 5."""
    found = calibration(np.array([0.22, 0.28, 0.94, 0.94, 1.0]), np.array([0, 1, 1, 1, 0]))
    first, last = found["bins"]
    assert (first["low"], first["high"], first["pairs"], first["observed"]) == (0.2, 0.3, 2, 0.5)
    assert (last["low"], last["high"], last["pairs"]) == (0.9, 1.0, 3)
    assert first["predicted"] == pytest.approx(0.25)
    assert last["predicted"] == pytest.approx(0.96)
    assert found["error"] == pytest.approx((2 * 0.25 + 3 * (0.96 - 2 / 3)) / 5)


def test_predictions_that_are_right_on_average_have_no_error():
    assert calibration(np.full(4, 0.75), np.array([1, 1, 1, 0]))["error"] == pytest.approx(0.0)
    assert calibration(np.full(4, 0.75), np.array([0, 0, 0, 1]))["error"] == pytest.approx(0.5)


def test_gold_accuracy_follows_gold_where_the_label_is_flipped():
    rows = table(4).with_columns(
        chosen_gold=pl.Series([2.0, 0.0, None, 1.0]), rejected_gold=pl.Series([1.0, 3.0, None, 1.0])
    )
    difference = np.array([1.0, 1.0, 1.0, 1.0])
    assert (
        gold_accuracy(rows, difference) == 0.5
    )  # right on the first, wrong on the flipped one; the others say nothing
    assert gold_accuracy(rows, -difference) == 0.5
    assert gold_accuracy(rows, np.array([1.0, -1.0, 1.0, 1.0])) == 1.0
    assert gold_accuracy(table(4), difference) is None


def test_metrics_of_pairs():
    found = pair_metrics(table(4), [1.0, 2.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0], 0)
    assert found["pairs"] == 4
    assert found["accuracy"] == 0.625
    assert found["loss"] == pytest.approx((0.313262 + 0.126928 + 1.313262 + 0.693147) / 4, abs=1e-6)
    assert found["chosen"] == {"mean": 1.0, "std": pytest.approx(0.5**0.5)}
    assert found["rejected"] == {"mean": 0.5, "std": 0.5}
    assert found["difference"]["mean"] == 0.5


def test_which_answer_is_first_is_drawn():
    """Always .73 for the chosen one: with a drawn order both sides of the diagram are there, and agree."""
    count = 400
    found = pair_metrics(table(count), [1.0] * count, [0.0] * count, 0)["calibration"]
    low, high = found["bins"]
    assert low["pairs"] + high["pairs"] == count
    assert low["pairs"] == pytest.approx(count / 2, abs=3 * count**0.5)
    assert (low["observed"], high["observed"]) == (0.0, 1.0)
    assert found["error"] == pytest.approx(1 - 0.731059, abs=1e-6)
