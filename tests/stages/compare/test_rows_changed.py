"""A hand table for each reason, and what must hold whatever the tables are."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.common.tables import KEY, TableError
from stages.compare.reasons import PAIRS, REASONS
from stages.compare.rows_changed import changed_schema, rows_changed
from tests.stages.compare.hand import side, without

LATE = ("timeout", "took 10 s")
MEAN = {"advantage__estimator": "moving_average"}
BATCH = {"advantage__estimator": "batch_mean"}
GRPO = {"advantage__estimator": "grpo"}
POPULATION = GRPO | {"advantage__grpo": {"std": "population"}}
REMAX = {"advantage__estimator": "remax", "rollout__greedy": True}
TO_GO = {"beta": 0.1, "placement": "reward_to_go"}


def one(*values, name="brief"):
    """A single group of a single reward."""
    return {"p": {name: list(values)}}


CASES = {
    "same": (side(one(1, 0, 0)), side(one(1, 0, 0)), ["unchanged"] * 3, ["", "", ""]),
    "value": (
        side(one(1, 0, 0)),
        side(one(1, 0.5, 0)),
        ["siblings", "reward", "siblings"],
        ["baseline 0 -> 0.25", "brief 0 -> 0.5", "baseline 0.5 -> 0.75"],
    ),
    "out of time": (
        side(one(1, 0, 0)),
        side(one(LATE, 0, 0)),
        ["left_baseline", "siblings", "siblings"],
        ["brief 1 -> timeout (took 10 s)", "baseline 0.5 -> 0", "baseline 0.5 -> 0"],
    ),
    "status, and the other reward goes on": (
        side({"p": {"brief": [1.0, 0.0], "extra": [0.0, 0.0]}}),
        side({"p": {"brief": [1.0, 0.0], "extra": [None, 0.0]}}),
        ["status", "unchanged"],
        ["extra 0 -> missing", ""],
    ),
    "another reward": (
        side(one(1, 0, 0.25)),
        side(one(1, 0.5, 0.25, name="other")),
        ["siblings", "reward", "siblings"],
        ["baseline 0.125 -> 0.375", "brief 0 -> absent; other absent -> 0.5", "baseline 0.5 -> 0.75"],
    ),
    "weight": (
        side(one(1, 0), weights={"brief": 1.0}),
        side(one(1, 0), weights={"brief": 0.5}),
        ["weight", "siblings"],
        ["weight of brief 1 -> 0.5", "baseline 1 -> 0.5"],
    ),
    "penalty": (
        side(one(1, 0), kl={"p": [2.0, 0.0]}, score__kl={"beta": 0.1}),
        side(one(1, 0), kl={"p": [2.0, 0.0]}, score__kl={"beta": 0.2}),
        ["kl", "siblings"],
        ["penalty 0.2 -> 0.4", "baseline 0.8 -> 0.6"],
    ),
    "penalty by token": (
        side(one(1, 0), kl={"p": [2.0, 0.0]}, score__kl=TO_GO),
        side(one(1, 0), kl={"p": [2.0, 0.0]}, score__kl=TO_GO | {"beta": 0.2}),
        ["kl", "unchanged"],
        ["advantages of tokens", ""],
    ),
    "estimator": (
        side(one(1, 0, 0)),
        side(one(1, 0, 0), **GRPO),
        ["estimator"] * 3,
        ["rloo -> grpo"] * 3,
    ),
    "a lost sibling": (
        side(one(1, 0)),
        side(one(1, LATE)),
        ["left_loss", "left_baseline"],
        ["no scorable sibling to compare with", "brief 0 -> timeout (took 10 s)"],
    ),
    "elsewhere in the batch": (
        side({"p": {"brief": [1, 0]}, "q": {"brief": [1, 0]}}, **BATCH),
        side({"p": {"brief": [1, 0]}, "q": {"brief": [1, 1]}}, **BATCH),
        ["batch", "batch", "siblings", "reward"],
        ["baseline 0.5 -> 0.75", "baseline 0.5 -> 0.75", "baseline 0.5 -> 0.75", "brief 0 -> 1"],
    ),
    "what was carried": (
        side(one(1, 0), carried=[0.25], **MEAN),
        side(one(1, 0.5), carried=[0.5], **MEAN),
        ["past", "reward"],
        ["baseline 0.25 -> 0.5", "brief 0 -> 0.5"],
    ),
    "no sibling matters": (
        side(one(1, 0), carried=[0.25], **MEAN),
        side(one(1, 0.5), carried=[0.25], **MEAN),
        ["unchanged", "reward"],
        ["", "brief 0 -> 0.5"],
    ),
    "the greedy completion": (
        side(one(1, 0), greedy=one(0.5), **REMAX),
        side(one(1, 0), greedy=one(0.25), **REMAX),
        ["reward", "siblings", "siblings"],  # in the order of keys: greedy 0, sample 0, sample 1
        ["brief 0.5 -> 0.25", "baseline 0.5 -> 0.25", "baseline 0.5 -> 0.25"],
    ),
    "no sample matters to remax": (
        side(one(1, 0), greedy=one(0.5), **REMAX),
        side(one(1, 0.25), greedy=one(0.5), **REMAX),
        ["unchanged", "unchanged", "reward"],
        ["", "", "brief 0 -> 0.25"],
    ),
    "a greedy completion that no baseline is made of": (
        side(one(1, 0), greedy=one(0.5)),
        side(one(1, 0), greedy=one(LATE)),
        ["status", "unchanged", "unchanged"],
        ["brief 0.5 -> timeout (took 10 s)", "", ""],
    ),
    "options": (
        side(one(1, 0), **GRPO),
        side(one(1, 0), **POPULATION),
        ["options"] * 2,
        ["advantage 0.7071 -> 1", "advantage -0.7071 -> -1"],
    ),
    "clipped": (
        side(one(1, -3)),
        side(one(1, -3), advantage__clip=2.0),
        ["options"] * 2,
        ["advantage 4 -> 2", "advantage -4 -> -2"],
    ),
    "class of the group": (
        side(one(1, 1)),
        side(one(1, 1), advantage__correct_reward=2.0),
        ["group_kind"] * 2,
        ["all_correct -> all_equal"] * 2,
    ),
    "a row less": (
        side(one(1, 0, 0)),
        without(side(one(1, 0)), prompt_id="none"),
        ["unchanged", "siblings", "only_in_a"],
        ["", "baseline 0.5 -> 1", ""],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_reason_and_detail(name):
    a, b, reasons, details = CASES[name]
    found = rows_changed(a, b)
    assert found["reason"].to_list() == reasons
    assert found["detail"].to_list() == details


def test_there_is_a_hand_table_for_every_reason():
    told = {reason for _, _, reasons, _ in CASES.values() for reason in reasons}
    assert told | {PAIRS.get(reason, reason) for reason in told} == set(REASONS)


def swapped(reason):
    both = PAIRS | {b: a for a, b in PAIRS.items()}
    return both.get(reason, reason)


def check_antisymmetry(a, b):
    there, back = rows_changed(a, b), rows_changed(b, a)
    assert back["reason"].to_list() == [swapped(reason) for reason in there["reason"]]
    assert back["advantage_change"].to_list() == [None if x is None else -x for x in there["advantage_change"]]
    for flag in ("score_changed", "advantage_changed", "sign_changed", "sign_flips"):
        assert back[flag].to_list() == there[flag].to_list()
    for column in ("score", "baseline", "advantage", "in_loss", "group_kind"):
        assert back[f"{column}_a"].to_list() == there[f"{column}_b"].to_list()


@pytest.mark.parametrize("name", CASES)
def test_exchanging_the_sides_exchanges_the_reasons(name):
    check_antisymmetry(*CASES[name][:2])


VALUES = st.sampled_from([0.0, 0.5, 1.0, None, LATE])
GROUPS = st.fixed_dictionaries(
    {p: st.fixed_dictionaries({"brief": st.lists(VALUES, min_size=3, max_size=3)}) for p in "pq"}
)
ESTIMATORS = st.sampled_from(["rloo", "grpo", "batch_mean", "raft", "reinforce", "moving_average", "max_rl", "opo"])


@settings(max_examples=40, deadline=None)
@given(GROUPS, GROUPS, ESTIMATORS)
def test_what_holds_for_any_two_tables(left, right, estimator):
    a, b = (side(groups, advantage__estimator=estimator) for groups in (left, right))
    check_antisymmetry(a, b)
    found = rows_changed(a, b)
    quiet = found.filter(reason="unchanged")
    assert not quiet["score_changed"].any()
    assert not quiet["advantage_changed"].any()
    around = found.filter(pl.col("reason").is_in(["siblings", "batch", "left_loss", "entered_loss", "options", "past"]))
    assert not around["score_changed"].any()  # its own score is the same, by what these words say
    assert not found["reason"].is_in(["options", "past", "weight", "kl", "estimator"]).any()  # nothing of these differs
    values = found.select(pl.col("reward_a/brief").ne_missing(pl.col("reward_b/brief"))).to_series()
    assert set(found.filter(values)["reason"]) <= {"reward", "left_baseline", "entered_baseline"}
    assert rows_changed(a, a)["reason"].unique().to_list() == ["unchanged"]


def test_signs():
    a = side({"p": {"brief": [1.0, 0.0]}, "q": {"brief": [1.0, 0.0]}})
    b = side({"p": {"brief": [0.0, 1.0]}, "q": {"brief": [1.0, 1.0]}})
    found = rows_changed(a, b)
    assert found["sign_flips"].to_list() == [True, True, False, False]
    assert found["sign_changed"].to_list() == [True] * 4
    assert found["advantage_change"].to_list() == [-2.0, 2.0, -1.0, 1.0]


def test_a_row_of_one_side_is_reported_and_has_no_change():
    a, b = side(one(1, 0, 0)), side(one(1, 0))
    (row,) = rows_changed(b, a).filter(reason="only_in_b").to_dicts()
    assert row["sample"] == 2
    assert row["score_a"] is None
    assert row["score_b"] == 0.0
    assert row["advantage_change"] is None


def test_schema_order_and_key():
    a, b = side(one(1, 0)), side({"p": {"brief": [1, 0], "other": [0, 1]}})
    found = rows_changed(a, b)
    assert dict(found.schema) == changed_schema(["brief"], ["brief", "other"])
    assert found.equals(found.sort(KEY))
    shuffled = rows_changed(
        type(a)(a.scores.reverse(), a.advantages.reverse()), type(b)(b.scores.reverse(), b.advantages)
    )
    assert shuffled.equals(rows_changed(type(a)(a.scores, a.advantages), type(b)(b.scores, b.advantages)))


def test_rounding_is_no_change():
    a, b = side(one(0.1 + 0.2, 0)), side(one(0.3, 0))
    assert rows_changed(a, b)["reason"].to_list() == ["unchanged"] * 2


def test_advantages_of_other_rows_are_refused():
    a = side(one(1, 0))
    with pytest.raises((TableError, pl.exceptions.PolarsError)):
        rows_changed(a, type(a)(pl.concat([a.scores, a.scores]), a.advantages))
