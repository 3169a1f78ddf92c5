"""The history of a long run is folded to what tells it."""

from itertools import pairwise

import polars as pl
import pytest

from pipeline.show.history import AT_ENDS, LINES, shown
from pipeline.show.text import text


def history(count, every):
    held_out = [0.5 if number % every == 0 else None for number in range(count)]
    return pl.DataFrame({"iteration": range(count), "eval/reward": pl.Series(held_out, dtype=pl.Float64)})


@pytest.mark.parametrize("count", [1, 21, LINES])
def test_a_short_one_is_shown_whole(count):
    assert shown(history(count, 5)).height == count


@pytest.mark.parametrize(("count", "every"), [(101, 5), (201, 10), (1001, 5), (1001, 100), (1001, 2000)])
def test_of_a_long_one_the_ends_and_one_of_each_stretch_are(count, every):
    found = shown(history(count, every))["iteration"].to_list()
    assert len(found) <= LINES + 1
    assert found[:AT_ENDS] == list(range(AT_ENDS))
    assert found[-AT_ENDS:] == list(range(count - AT_ENDS, count))
    assert max(b - a for a, b in pairwise(found)) <= 2 * -(-count // (LINES - 2 * AT_ENDS))


def test_evaluated_iterations_stand_for_their_stretch():
    middle = shown(history(1001, 5))["iteration"].to_list()[AT_ENDS:-AT_ENDS]
    assert all(number % 5 == 0 for number in middle)


def test_a_history_without_evaluations_is_folded_too():
    assert shown(pl.DataFrame({"iteration": range(500)})).height <= LINES + 1


@pytest.mark.parametrize(("value", "expected"), [(-0.0004, "0.000"), (-0.0, "0.000"), (-0.0006, "-0.001"), (1, "1")])
def test_what_is_rounded_to_zero_has_no_sign(value, expected):
    assert text(value) == expected
