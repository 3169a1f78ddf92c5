"""Every estimator by hand, with the sums written out; and what they all have to hold."""

import math
import random

import polars as pl
import pytest

from stages.advantage.batch_mean import batch_mean
from stages.advantage.dr_grpo import dr_grpo
from stages.advantage.groups import decide_loss, describe_groups
from stages.advantage.grpo import grpo
from stages.advantage.max_rl import max_rl
from stages.advantage.moving_average import moving_average
from stages.advantage.opo import opo
from stages.advantage.raft import raft
from stages.advantage.reinforce import reinforce
from stages.advantage.reinforce_pp import reinforce_pp
from stages.advantage.remax import remax
from stages.advantage.rloo import rloo
from stages.common.params import Advantage
from stages.common.tables import KEY

ESTIMATORS = {
    "rloo": rloo,
    "reinforce": reinforce,
    "batch_mean": lambda frame: batch_mean(frame, leave_one_out=False),
    "batch_mean, left out": lambda frame: batch_mean(frame, leave_one_out=True),
    "grpo, population": lambda frame: grpo(frame, std="population"),
    "grpo, sample": lambda frame: grpo(frame, std="sample"),
    "dr_grpo": dr_grpo,
    "reinforce_pp, batch": lambda frame: reinforce_pp(frame, baseline="batch"),
    "reinforce_pp, group": lambda frame: reinforce_pp(frame, baseline="group"),
    "moving_average": lambda frame: moving_average(frame, 0.4),
    "remax": lambda frame: remax(frame, greedy_rows(frame)),
    "raft": raft,
    "opo": opo,
    "max_rl": max_rl,
}
NONE = None


def frame(groups, lengths=None):
    rows = [
        {"iteration": 1, "prompt_id": prompt, "sample": sample, "kind": "sample", "score": value, "task_reward": value}
        for prompt, values in groups.items()
        for sample, value in enumerate(values)
    ]
    schema = {"score": pl.Float64, "task_reward": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=schema).with_columns(
        length=pl.Series(lengths or [1] * len(rows), dtype=pl.UInt32),
        accepted=pl.lit(True),
        outcome="task_reward",
        token_advantages=pl.lit(None, dtype=pl.List(pl.Float64)),
    )


def greedy_rows(frame, **scores):
    """The greedy completion of each prompt: of 0.5, if not said otherwise."""
    groups = frame.select("iteration", "prompt_id").unique(maintain_order=True)
    values = [scores.get(prompt, 0.5) for prompt in groups["prompt_id"]]
    return groups.with_columns(score=pl.Series(values, dtype=pl.Float64))


def advantages(name, groups, lengths=None):
    return ESTIMATORS[name](frame(groups, lengths))["advantage"].to_list()


def approx(values):
    return [value if value is None else pytest.approx(value, abs=1e-12) for value in values]


@pytest.mark.parametrize(
    ("name", "groups", "expected"),
    [
        ("reinforce", {"a": [1, 0], "b": [None, 3]}, [1, 0, NONE, 3]),
        # mean of the batch (1 + 0 + 2 + 5) / 4 = 2
        ("batch_mean", {"a": [1, 0], "b": [2, None, 5]}, [1 - 2, 0 - 2, 2 - 2, NONE, 5 - 2]),
        # the others: 7 / 3, 8 / 3, 6 / 3, 3 / 3
        ("batch_mean, left out", {"a": [1, 0], "b": [2, None, 5]}, [1 - 7 / 3, 0 - 8 / 3, 2 - 2, NONE, 5 - 1]),
        ("batch_mean, left out", {"a": [1, None]}, [NONE, NONE]),
        # mean 1, squares 1 + 0 + 1: std sqrt(2 / 3) of the population, sqrt(2 / 2) of the sample
        ("grpo, population", {"a": [0, 1, 2]}, [-1 / math.sqrt(2 / 3), 0, 1 / math.sqrt(2 / 3)]),
        ("grpo, population", {"a": [0, 1, 2]}, [-1.224744871391589, 0, 1.224744871391589]),
        ("grpo, sample", {"a": [0, 1, 2], "b": [4, 4]}, [-1, 0, 1, 0, 0]),
        # [1, -, 0]: mean 1/2, squares 1/4 + 1/4; population sqrt(1/4), sample sqrt(1/2)
        ("grpo, population", {"a": [1, None, 0]}, [1, NONE, -1]),
        ("grpo, sample", {"a": [1, None, 0]}, [math.sqrt(0.5), NONE, -math.sqrt(0.5)]),
        ("dr_grpo", {"a": [1, 0, 0, 0], "b": [3, None]}, [0.75, -0.25, -0.25, -0.25, NONE, NONE]),
        # batch 0, 1, 2, 5: mean 2, squares 4 + 1 + 0 + 9 = 14, std sqrt(14 / 4)
        (
            "reinforce_pp, batch",
            {"a": [0, 1], "b": [2, 5]},
            [-2 / math.sqrt(3.5), -1 / math.sqrt(3.5), 0, 3 / math.sqrt(3.5)],
        ),
        # after the groups' means: -.5, .5, -1.5, 1.5; mean 0, squares .25 + .25 + 2.25 + 2.25 = 5, std sqrt(5 / 4)
        (
            "reinforce_pp, group",
            {"a": [0, 1], "b": [2, 5]},
            [-0.5 / math.sqrt(1.25), 0.5 / math.sqrt(1.25), -1.5 / math.sqrt(1.25), 1.5 / math.sqrt(1.25)],
        ),
        (
            "raft",
            {"a": [0, 2, 1], "b": [1, 1], "c": [3, None], "d": [5, 5, 1]},
            [NONE, 1, NONE, 1, 1, 1, NONE, 1, 1, NONE],
        ),
        # mean 1/4: .75 / .25, -.25 / .25; mean 0: 0
        ("max_rl", {"a": [1, 0, 0, 0], "b": [0, 0], "c": [-1, 1]}, [3, -1, -1, -1, 0, 0, 0, 0]),
    ],
)
def test_by_hand(name, groups, expected):
    assert advantages(name, groups) == approx(expected)


def test_opo_weighs_scores_by_length():
    # a: (10 * 1 + 30 * 0) / 40 = .25; b: (5 * 2 + 5 * 4) / 10 = 3, the unscorable row's length left out
    groups, lengths = {"a": [1, 0], "b": [2, None, 4]}, [10, 30, 5, 99, 5]
    assert advantages("opo", groups, lengths) == approx([0.75, -0.25, -1, NONE, 1])
    assert advantages("opo", {"a": [1, 0, 0]}, [7, 7, 7]) == approx(advantages("dr_grpo", {"a": [1, 0, 0]}))


NEEDS_NO_SIBLING = (
    "reinforce",
    "moving_average",
    "remax",
    "batch_mean",
    "batch_mean, left out",
    "reinforce_pp, batch",
    "raft",
)
GROUPS = {"a": [0.1, 0.7, 0.3, 0.7], "b": [None, 0.2], "c": [1 / 3] * 3, "d": [0.5, None, 0.9], "e": [None, None]}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_row_order_and_interleaving_change_nothing(name):
    table = frame(GROUPS, list(range(3, 17)))
    order = list(range(table.height))
    random.Random(4).shuffle(order)
    straight = ESTIMATORS[name](table).select(*KEY, "advantage").sort(KEY)
    shuffled = ESTIMATORS[name](table[order]).select(*KEY, "advantage").sort(KEY)
    assert shuffled["advantage"].to_list() == approx(straight["advantage"].to_list())
    assert straight.height == table.height


@pytest.mark.parametrize(
    "name", [name for name in ESTIMATORS if name not in ("reinforce", "moving_average", "remax", "raft", "max_rl")]
)
def test_a_constant_batch_gives_exactly_zero(name):
    found = advantages(name, {"a": [0.1] * 3, "b": [0.1] * 4})
    assert found == [0.0] * 7 if "left out" not in name else found == approx([0.0] * 7)


@pytest.mark.parametrize(
    "name", ["rloo", "grpo, population", "grpo, sample", "dr_grpo", "opo", "max_rl", "reinforce_pp, group"]
)
@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7])
def test_a_constant_group_gives_exactly_zero_beside_others(name, value):
    assert advantages(name, {"a": [value] * 3, "b": [0, 1]})[:3] == [0.0] * 3


@pytest.mark.parametrize("name", ["rloo", "grpo, population", "grpo, sample", "dr_grpo", "max_rl"])
def test_advantages_of_a_group_sum_to_zero(name):
    table = ESTIMATORS[name](frame(GROUPS))
    assert table.group_by("prompt_id").agg(pl.col("advantage").sum().abs())["advantage"].max() < 1e-12


@pytest.mark.parametrize("name", ESTIMATORS)
def test_unscorable_rows_and_lonely_rows(name):
    table = decide_loss(ESTIMATORS[name](describe_groups(frame(GROUPS), Advantage())), name)
    unscorable = table.filter(pl.col("score").is_null())
    assert unscorable["advantage"].null_count() == unscorable.height == 4
    assert not unscorable["in_loss"].any()
    (lonely,) = table.filter((pl.col("prompt_id") == "b") & pl.col("score").is_not_null()).to_dicts()
    by_batch = name in NEEDS_NO_SIBLING
    assert lonely["in_loss"] == by_batch
    assert lonely["reason"].startswith("counted" if by_batch else "no scorable sibling")


def test_raft_says_why_a_row_is_left_out():
    table = decide_loss(raft(describe_groups(frame({"a": [0, 1]}), Advantage())), "raft")
    assert table["reason"].to_list() == ["left out by the estimator: not the best of its group", "counted"]
    assert table["in_loss"].to_list() == [False, True]


BY_GROUP = [name for name in ESTIMATORS if not name.startswith(("batch_mean", "reinforce_pp"))]
NORMALISED = ["grpo, population", "grpo, sample", "max_rl", "reinforce_pp, batch", "reinforce_pp, group"]


@pytest.mark.parametrize("name", BY_GROUP)
def test_prompts_with_the_same_text_stay_apart(name):
    """Each group alone, interleaved with another of the same text, or after it: the same advantages."""
    groups = {"a": [1, 0, 0.5], "a again": [5, 3, 3]}
    both = frame(groups).with_columns(prompt=pl.lit("How do I slice a tomato?"))
    found = ESTIMATORS[name](both[[3, 0, 4, 1, 2, 5]]).sort(KEY)
    for prompt, values in groups.items():
        assert found.filter(prompt_id=prompt)["advantage"].to_list() == approx(advantages(name, {prompt: values}))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_tied_rows_have_tied_advantages(name):
    found = advantages(name, {"a": [1, 0, 1], "b": [0.3, 0.3, 0.1]})
    assert found[0] == (found[2] if found[2] is None else pytest.approx(found[2], abs=1e-15))
    assert found[3] == (found[4] if found[4] is None else pytest.approx(found[4], abs=1e-15))


@pytest.mark.parametrize("name", [*NORMALISED, "rloo", "dr_grpo", "opo"])
def test_rounding_is_no_signal(name):
    """.1 + .2 is not .3; and at the start of a run the KL inside a score is noise of float32 log-probs."""
    other = {} if name == "reinforce_pp, batch" else {"b": [0, 1]}
    assert advantages(name, {"a": [0.3, 0.1 + 0.2]} | other)[:2] == [0.0, 0.0]
    noisy = frame({"a": [1, 1, 1]} | other).with_columns(
        score=pl.col("task_reward") + 1e-7 * pl.int_range(pl.len()).cast(pl.Float64)
    )
    assert ESTIMATORS[name](noisy)["advantage"].to_list()[:3] == [0.0] * 3


@pytest.mark.parametrize("name", NORMALISED)
def test_a_difference_in_kl_alone_is_not_blown_up(name):
    scores = pl.Series([0.99, 0.97, 0.9])
    assert ESTIMATORS[name](frame({"a": [1, 1, 1]}).with_columns(score=scores))["advantage"].abs().max() < 0.1


@pytest.mark.parametrize("name", ["rloo", "dr_grpo"])
def test_a_difference_in_kl_alone_counts_for_what_it_is(name):
    scores = pl.Series([0.99, 0.97])
    found = ESTIMATORS[name](frame({"a": [1, 1]}).with_columns(score=scores))["advantage"].to_list()
    assert found == approx([0.02, -0.02] if name == "rloo" else [0.01, -0.01])


def test_the_best_of_raft_are_all_that_tie_but_for_rounding():
    tied = frame({"a": [1, 1, 0]}).with_columns(score=pl.Series([1.0, 1.0 - 1e-8, 0.0]))
    assert raft(tied)["advantage"].to_list() == [1, 1, NONE]
    less_kl = frame({"a": [1, 1, 0]}).with_columns(score=pl.Series([0.9, 0.95, 0.0]))
    assert raft(less_kl)["advantage"].to_list() == [NONE, 1, NONE]
