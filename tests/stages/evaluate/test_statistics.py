"""Bootstrap intervals and distinct-n."""

import numpy as np
import pytest

from stages.evaluate.bootstrap import bootstrap_interval
from stages.evaluate.diversity import distinct_n


def sample(seed, size=40):
    return np.random.default_rng(seed).normal(1.0, 2.0, size)


def test_interval_is_deterministic_and_depends_on_the_seed():
    assert bootstrap_interval(sample(0), 0.95, 200, 5) == bootstrap_interval(sample(0), 0.95, 200, 5)
    assert bootstrap_interval(sample(0), 0.95, 200, 5) != bootstrap_interval(sample(0), 0.95, 200, 6)


def test_seed_of_64_bits_is_taken():
    low, high = bootstrap_interval(sample(0), 0.95, 200, 2**64 - 1)
    assert low < high


@pytest.mark.parametrize("seed", range(10))
def test_interval_contains_the_mean(seed):
    low, high = bootstrap_interval(sample(seed), 0.95, 500, seed)
    assert low < sample(seed).mean() < high


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0, -3.0])
def test_constant_data_has_no_width(value):
    assert bootstrap_interval(np.full(30, value), 0.95, 200, 0) == (value, value)


def test_one_prompt_has_no_width():
    assert bootstrap_interval(np.array([0.7]), 0.95, 200, 0) == (0.7, 0.7)


def test_more_confidence_is_wider_and_more_prompts_are_narrower():
    def width(confidence, size):
        low, high = bootstrap_interval(sample(1, size), confidence, 1000, 0)
        return high - low

    assert width(0.5, 40) < width(0.9, 40) < width(0.99, 40)
    assert width(0.9, 640) < width(0.9, 40) / 2


def test_width_is_that_of_the_normal_approximation():
    values = sample(2, 400)
    low, high = bootstrap_interval(values, 0.95, 2000, 0)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)


def test_interval_stays_inside_the_data():
    values = np.array([0.0] * 5 + [1.0] * 5)
    low, high = bootstrap_interval(values, 0.999999, 500, 0)
    assert 0.0 <= low < high <= 1.0


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_coverage_is_about_nominal(confidence):
    covered = 0
    for seed in range(200):
        low, high = bootstrap_interval(sample(seed), confidence, 300, seed)
        covered += low <= 1.0 <= high
    assert abs(covered / 200 - confidence) < 0.06  # two standard errors, and a little for 40 prompts


@pytest.mark.parametrize(
    ("texts", "n", "expected"),
    [
        (["a b c"], 1, 1.0),
        (["a a a a"], 1, 1 / 4),
        (["a b a b"], 2, 2 / 3),  # ab, ba, ab
        (["a b", "a b"], 2, 1 / 2),
        (["a b", "b a"], 2, 1.0),
        (["a b", "c d"], 2, 1.0),  # no gram runs from one text into the next
        (["A b", "a B"], 2, 1 / 2),  # case does not matter
        (["a  b\nc"], 2, 1.0),  # white space does not either
        (["a b c d", "a b c e"], 3, 3 / 4),  # abc, bcd, abc, bce
        (["a", "b"], 2, 0.0),
        (["", "a b"], 2, 1.0),
        ([], 1, 0.0),
    ],
)
def test_distinct_n(texts, n, expected):
    assert distinct_n(texts, n) == pytest.approx(expected, abs=1e-15)
