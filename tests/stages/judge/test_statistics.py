"""Win-rates by hand, and how often an interval that says 95 % covers the truth."""

import math

import numpy as np
import pytest

from stages.evaluate.bootstrap import bootstrap_interval
from stages.judge.outcomes import by_scores, by_verdicts
from stages.judge.statistics import length_controlled, sign_test, win_rate


def test_a_tie_counts_half():
    # two wins, one loss, one tie: (1 + 1 + 0 + .5) / 4
    assert win_rate([1, 1, 0, 0.5]) == 0.625


@pytest.mark.parametrize(
    ("outcomes", "p"),
    [
        ([1] * 5, 2 / 32),  # one way out of 32 to each side
        ([1] * 5 + [0.5] * 10, 2 / 32),  # ties say nothing
        ([1] * 4 + [0], 2 * (1 + 5) / 32),
        ([1, 0], 1.0),
        ([0.5, 0.5], 1.0),
        ([0.75] * 5, 2 / 32),  # prompts won on average
        ([0] * 10, 2 / 1024),
    ],
)
def test_sign_test_by_hand(outcomes, p):
    assert sign_test(outcomes) == pytest.approx(p)


def test_win_rate_at_equal_length_by_hand():
    """Twice as long: 3 of 4 won; half as long: 2 of 4. The two logits, ln 3 and 0, are half the way from zero
    difference to either side: sigmoid(ln(3) / 2) = .634.
    """
    outcomes = [1, 1, 1, 0, 1, 1, 0, 0]
    lengths, others = [20] * 4 + [10] * 4, [10] * 4 + [20] * 4
    assert length_controlled(outcomes, lengths, others) == pytest.approx(1 / (1 + 1 / math.sqrt(3)), abs=1e-3)


def test_wins_by_length_alone_are_none_at_equal_length():
    rng = np.random.default_rng(0)
    lengths, others = rng.integers(10, 60, 400), rng.integers(10, 40, 400)
    outcomes = np.where(lengths > others, 1.0, np.where(lengths < others, 0.0, 0.5))
    assert win_rate(outcomes) > 0.6
    assert length_controlled(outcomes, lengths, others) == pytest.approx(0.5, abs=0.06)


def test_where_length_says_nothing_it_is_the_win_rate():
    rng = np.random.default_rng(1)
    outcomes = (rng.random(2000) < 0.7).astype(float)
    lengths, others = rng.integers(10, 60, 2000), rng.integers(10, 60, 2000)
    assert length_controlled(outcomes, lengths, others) == pytest.approx(win_rate(outcomes), abs=0.02)
    assert length_controlled([1, 0, 1], [5, 5, 5], [5, 5, 5]) == pytest.approx(2 / 3)


@pytest.mark.parametrize("truth", [0.5, 0.8])
def test_the_interval_covers_what_it_says(truth):
    """Outcomes with ties, 80 prompts, 400 experiments: 95 % but for chance and the small sample."""
    rng = np.random.default_rng(2)
    covered = 0
    for number in range(400):
        outcome = rng.choice([1.0, 0.5, 0.0], size=80, p=[truth - 0.1, 0.2, 0.9 - truth])
        low, high = bootstrap_interval(outcome, 0.95, 400, number)
        covered += low <= truth <= high
    assert 0.91 <= covered / 400 <= 0.98


def test_outcomes_by_scores():
    scores, others = [1.0, 0.0, 0.5, 0.52, None, 1.0], [0.0, 1.0, 0.5, 0.5, 1.0, None]
    assert by_scores(scores, others, 0.0) == [1.0, 0.0, 0.5, 1.0, None, None]
    assert by_scores(scores, others, 0.05) == [1.0, 0.0, 0.5, 0.5, None, None]


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        ("A", "B", 1.0),  # ours, wherever it stands
        ("B", "A", 0.0),
        ("A", "A", 0.5),  # the first one, whichever it is
        ("B", "B", 0.5),
        ("tie", "tie", 0.5),
        ("A", "tie", 1.0),
        ("tie", "A", 0.0),
        (None, "A", None),
        ("A", None, None),
    ],
)
def test_outcomes_of_both_orders(first, second, outcome):
    assert by_verdicts(first, second) == outcome
