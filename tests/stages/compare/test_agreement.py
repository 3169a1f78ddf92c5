"""How far two sets of rewards agree, by hand."""

import polars as pl
import pytest

from stages.compare.agreement import agreement, joined, pearson, statuses
from tests.stages.compare.hand import side


def rows(left, right):
    a, b = side(left), side(right)
    return joined((a.scores, b.scores), (a.advantages, b.advantages))


def groups(**values):
    return {name: {"brief": list(one)} for name, one in values.items()}


def test_within_and_across_can_differ_in_sign():
    found = agreement(rows(groups(p=(0, 1), q=(10, 11)), groups(p=(11, 10), q=(101, 100))))
    assert found["pearson_within"] == pytest.approx(-1)
    assert found["spearman_within"] == pytest.approx(-1)
    assert found["pearson_across"] == pytest.approx(1)
    assert found["spearman_across"] == pytest.approx(1)
    assert (found["old"], found["new"]) == (5.5, 55.5)
    assert found["sign_flips"] == 1.0


def test_against_polars_for_one_group_with_ties():
    x, y = [0.0, 0.5, 0.5, 2.0, 9.0], [1.0, 3.0, 2.0, 2.0, 2.5]
    found = agreement(rows(groups(p=x), groups(p=y)))
    frame = pl.DataFrame({"x": x, "y": y})
    for method in ("pearson", "spearman"):
        expected = frame.select(pl.corr("x", "y", method=method)).item()
        assert found[f"{method}_within"] == pytest.approx(expected)
    assert found["pearson_across"] is None  # one group: nothing varies


def test_rows_without_a_reward_on_one_side_are_in_no_correlation_but_in_the_means():
    found = agreement(rows(groups(p=(0, 1, 5)), groups(p=(1, 0, None))))
    assert found["pearson_within"] == pytest.approx(-1)
    assert found["old"] == 2.0
    assert found["new"] == 0.5
    assert found["rows"] == 3


def test_what_does_not_vary_has_no_correlation():
    found = agreement(rows(groups(p=(0, 1), q=(1, 0)), groups(p=(0.1, 0.1), q=(0.3, 0.3))))
    assert found["pearson_within"] is None
    assert found["spearman_within"] is None
    assert pearson(pl.DataFrame({"reward": [1.0], "reward_new": [2.0]})) is None


def test_groups_gain_and_lose_signal():
    left = groups(p=(0, 1), q=(1, 1), r=(0, 0), s=(0, 1))
    right = groups(p=(1, 1), q=(0, 1), r=(0, 0), s=(1, 0))
    found = agreement(rows(left, right))
    assert found["groups"] == 4
    assert (found["gained"], found["lost"]) == (0.25, 0.25)
    assert found["sign_flips"] == 2 / 8


def test_unscorable_rows_by_status_with_the_most_frequent_message():
    late = ("timeout", "took 10 s")
    one = side({"p": {"brief": [1.0, late, late, ("timeout", "other")], "extra": [None, 0.0, 0.0, 0.0]}})
    assert statuses(one.scores).rows() == [("brief", "timeout", 3, "took 10 s"), ("extra", "missing", 1, None)]
    assert statuses(side(groups(p=(0, 1))).scores).is_empty()
