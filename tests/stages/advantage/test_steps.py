"""Token-level KL, normalising and clipping, by hand; moving averages and what they carry on."""

import math

import polars as pl
import pytest

from stages.advantage.moving_average import baseline_of, carry_on, moving_average
from stages.advantage.remax import remax
from stages.advantage.steps import clip, normalise
from stages.advantage.token_kl import reward_to_go
from stages.common.params import MovingAverage

NO_TOKENS = pl.lit(None, dtype=pl.List(pl.Float64))


def rows(advantages, tokens=None):
    frame = pl.DataFrame({"advantage": advantages}, schema={"advantage": pl.Float64})
    if tokens is None:
        return frame.with_columns(token_advantages=NO_TOKENS)
    return frame.with_columns(token_advantages=pl.Series(tokens, dtype=pl.List(pl.Float64)))


def test_each_token_pays_for_itself_and_for_what_follows():
    frame = rows([1.0, None]).with_columns(token_kl=pl.Series([[0.5, -0.25, 2.0], [1.0]]))
    # to go: .5 - .25 + 2 = 2.25, 1.75, 2; times .1
    found = reward_to_go(frame, 0.1)["token_advantages"].to_list()
    assert found == [pytest.approx([1 - 0.225, 1 - 0.175, 1 - 0.2]), None]


def test_normalising_by_hand():
    # mean 2, squares 4 + 1 + 0 + 9 = 14, population std sqrt(14 / 4)
    found = normalise(rows([0.0, 1.0, None, 2.0, 5.0]))["advantage"].to_list()
    std = math.sqrt(3.5)
    assert found == [pytest.approx(-2 / std), pytest.approx(-1 / std), None, pytest.approx(0.0), pytest.approx(3 / std)]


def test_normalising_counts_every_token_where_tokens_have_their_own():
    # tokens 0, 3, 3: mean 2, squares 4 + 1 + 1 = 6, std sqrt 2
    found = normalise(rows([9.0, 9.0, None], [[0.0], [3.0, 3.0], None]))
    root = math.sqrt(2)
    assert found["token_advantages"].to_list() == [[pytest.approx(-2 / root)], [pytest.approx(1 / root)] * 2, None]
    assert found["advantage"].to_list() == [9.0, 9.0, None]


@pytest.mark.parametrize("value", [0.1, 1 / 3, -0.7])
def test_equal_advantages_are_normalised_to_exactly_zero(value):
    assert normalise(rows([value] * 3))["advantage"].to_list() == [0.0] * 3
    assert normalise(rows([None]))["advantage"].to_list() == [None]


def test_clipping():
    assert clip(rows([-3.0, 0.5, None, 2.0]), 1.5)["advantage"].to_list() == [-1.5, 0.5, None, 1.5]
    assert clip(rows([9.0], [[-3.0, 1.0]]), 1.5)["token_advantages"].to_list() == [[-1.5, 1.0]]


FIRST, SECOND, THIRD = pl.Series([1.0, 0.0, None]), pl.Series([4.0]), pl.Series([None, None], dtype=pl.Float64)


@pytest.mark.parametrize(
    ("options", "baselines"),
    [
        # (1 + 0) / 2; (1 + 0 + 4) / 3; unchanged, as nothing of the third could be scored
        (MovingAverage(form="all"), [0.0, 0.5, 5 / 3, 5 / 3]),
        (MovingAverage(form="window", window=1), [0.0, 0.5, 4.0, 4.0]),
        (MovingAverage(form="window", window=2), [0.0, 0.5, 5 / 3, 5 / 3]),
        # starts at the first mean: .9 * .5 + .1 * 4
        (MovingAverage(form="ema", decay=0.9), [0.0, 0.5, 0.85, 0.85]),
        (MovingAverage(form="ema", decay=0.99), [0.0, 0.5, 0.535, 0.535]),
    ],
)
def test_moving_averages_by_hand(options, baselines):
    carried, found = [], []
    for scores in (FIRST, SECOND, THIRD):
        found.append(baseline_of(carried, options))
        carried = carry_on(carried, scores, options)
    assert [*found, baseline_of(carried, options)] == pytest.approx(baselines)


def test_a_window_forgets_and_its_state_does_not_grow():
    options, carried = MovingAverage(form="window", window=2), []
    for value in range(10):
        carried = carry_on(carried, pl.Series([float(value)]), options)
    assert carried == [8.0, 1.0, 9.0, 1.0]
    assert baseline_of(carried, options) == 8.5


def test_moving_average_advantages():
    found = moving_average(pl.DataFrame({"score": [1.0, None, 0.25]}), 0.5)
    assert found["baseline"].to_list() == [0.5, None, 0.5]
    assert found["advantage"].to_list() == [0.5, None, -0.25]


def test_remax_by_hand():
    keys = {"iteration": [1] * 5, "prompt_id": ["a", "b", "a", "b", "c"]}
    scores = pl.DataFrame(keys | {"score": [1.0, 0.5, None, 0.0, 1.0]})
    greedy = pl.DataFrame({"iteration": [1] * 3, "prompt_id": ["b", "a", "c"], "score": [0.25, 0.75, None]})
    found = remax(scores, greedy)
    assert found["baseline"].to_list() == [0.75, 0.25, None, 0.25, None]
    assert found["advantage"].to_list() == [0.25, 0.25, None, -0.25, None]
