"""Leave-one-out: golden values with their sums written out, properties, and the whole advantages table."""

from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.advantage.groups import decide_loss, describe_groups
from stages.advantage.rloo import rloo
from stages.advantage.run import advantage_table
from stages.common.params import Advantage
from stages.common.params_file import load_params, parse_params
from stages.common.tables import ADVANTAGES, KEY, KEY_SCHEMA, TableError

FILE = Path(__file__).parents[3] / "params.yaml"


def frame(groups):
    """Rows of the scores table that matter here; `groups` maps a prompt id to its scores."""
    rows = [
        {"iteration": 1, "prompt_id": prompt, "sample": sample, "kind": "sample", "task_reward": value, "score": value}
        for prompt, values in groups.items()
        for sample, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=KEY_SCHEMA | {"task_reward": pl.Float64(), "score": pl.Float64()}).with_columns(
        ref_logprobs=pl.lit([-1.0], dtype=pl.List(pl.Float32())),
        token_kl=pl.lit([0.0], dtype=pl.List(pl.Float32())),
        length=pl.lit(1, dtype=pl.Int32()),
        values=pl.lit(None, dtype=pl.List(pl.Float32())),
        accepted=pl.lit(True),
        token_advantages=pl.lit(None, dtype=pl.List(pl.Float64())),
        outcome="task_reward",
    )


def column(groups, name="advantage"):
    table = rloo(frame(groups))
    return {prompt: table.filter(pl.col("prompt_id") == prompt)[name].to_list() for prompt in groups}


def approx(values):
    return [value if value is None else pytest.approx(value, abs=1e-12) for value in values]


@pytest.mark.parametrize(
    ("scores", "baselines", "advantages"),
    [
        # S = 2: (2 - 1) / 3 for the ones, (2 - 0) / 3 for the zeros
        ([1, 1, 0, 0], [1 / 3, 1 / 3, 2 / 3, 2 / 3], [2 / 3, 2 / 3, -2 / 3, -2 / 3]),
        # S = 1: (1 - 1) / 3, (1 - 0) / 3
        ([1, 0, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3], [1, -1 / 3, -1 / 3, -1 / 3]),
        # S = 2.01
        (
            [0.80, 0.47, 0.13, 0.61],
            [(0.47 + 0.13 + 0.61) / 3, (0.80 + 0.13 + 0.61) / 3, (0.80 + 0.47 + 0.61) / 3, (0.80 + 0.47 + 0.13) / 3],
            [0.80 - 1.21 / 3, 0.47 - 1.54 / 3, 0.13 - 1.88 / 3, 0.61 - 1.40 / 3],
        ),
        # S = 16: 15 / 3, 14 / 3, 11 / 3, 8 / 3
        ([1, 2, 5, 8], [5, 14 / 3, 11 / 3, 8 / 3], [-4, -8 / 3, 4 / 3, 16 / 3]),
        # S = 6: 5 / 2, 4 / 2, 3 / 2
        ([1, 2, 3], [2.5, 2, 1.5], [-1.5, 0, 1.5]),
        # S = 1 over two scorable rows: (1 - 1) / 1, (1 - 0) / 1
        ([1, None, 0], [0, None, 1], [1, None, -1]),
        ([1, None], [None, None], [None, None]),
        ([None, None], [None, None], [None, None]),
        ([1], [None], [None]),
        ([0, 1], [1, 0], [-1, 1]),
    ],
)
def test_golden_values(scores, baselines, advantages):
    assert column({"p": scores}, "baseline")["p"] == approx(baselines)
    assert column({"p": scores})["p"] == approx(advantages)


def test_golden_values_to_four_places():
    scores = {"p": [0.80, 0.47, 0.13, 0.61]}
    assert [round(value, 4) for value in column(scores, "baseline")["p"]] == [0.4033, 0.5133, 0.6267, 0.4667]
    assert [round(value, 4) for value in column(scores)["p"]] == [0.3967, -0.0433, -0.4967, 0.1433]


@pytest.mark.parametrize("scores", [[3, 3, 3], [0, 0], [1, 1, 1, 1], [-0.5] * 5])
def test_equal_scores_give_exactly_zero(scores):
    assert column({"p": scores})["p"] == [0.0] * len(scores)


@pytest.mark.parametrize("scores", [[1 / 3] * 3, [2 / 3] * 3, [0.1] * 3, [0.7] * 4], ids=str)
def test_equal_scores_that_are_no_binary_fractions_give_exactly_zero(scores):
    assert column({"p": scores})["p"] == [0.0] * len(scores)


def test_groups_of_unequal_size_keep_their_own_baselines():
    found = column({"a": [1, 0], "b": [1, 2, 3], "c": [5], "d": [1, 1, 0, 0]})
    assert found["a"] == approx([1, -1])
    assert found["b"] == approx([-1.5, 0, 1.5])
    assert found["c"] == [None]
    assert found["d"] == approx([2 / 3, 2 / 3, -2 / 3, -2 / 3])


def test_prompts_with_the_same_text_but_other_ids_stay_apart():
    one = frame({"a": [1, 0], "b": [5, 7]}).with_columns(prompt=pl.lit("Why?"))
    assert rloo(one)["advantage"].to_list() == [1, -1, -2, 2]


def test_iterations_stay_apart():
    one = frame({"a": [1, 0]})
    other = frame({"a": [5, 7]}).with_columns(pl.lit(2, pl.Int32).alias("iteration"))
    assert rloo(pl.concat([one, other]))["advantage"].to_list() == [1, -1, -2, 2]


numbers = st.floats(-100, 100, allow_subnormal=False)
many = settings(max_examples=60, deadline=None, database=None)
some_groups = st.lists(st.lists(st.none() | numbers, min_size=1, max_size=6), min_size=1, max_size=5).map(
    lambda lists: {f"p{number}": values for number, values in enumerate(lists)}
)


@many
@given(some_groups)
def test_advantages_of_a_group_sum_to_zero_and_scale_the_deviation_from_the_mean(groups):
    for prompt, advantages in column(groups).items():
        scores = groups[prompt]
        scorable = [score for score in scores if score is not None]
        n = len(scorable)
        if n < 2:
            assert advantages == [None] * len(scores)
            continue
        largest = max(1.0, *map(abs, scorable))
        assert abs(sum(a for a in advantages if a is not None)) <= 1e-9 * largest
        mean = sum(scorable) / n
        expected = [None if score is None else n / (n - 1) * (score - mean) for score in scores]
        assert advantages == [e if e is None else pytest.approx(e, abs=1e-9 * largest) for e in expected]


@many
@given(some_groups, st.randoms(use_true_random=False))
def test_order_of_rows_and_groups_does_not_matter(groups, rng):
    table = frame(groups)
    order = list(range(table.height))
    rng.shuffle(order)
    straight = rloo(table).sort(KEY)["advantage"].to_list()
    shuffled = rloo(table[order]).sort(KEY)["advantage"].to_list()
    assert shuffled == [a if a is None else pytest.approx(a, abs=1e-9) for a in straight]


@many
@given(some_groups, numbers)
def test_adding_a_constant_to_a_group_changes_nothing(groups, shift):
    moved = {prompt: [v if v is None else v + shift for v in values] for prompt, values in groups.items()}
    straight, shifted = column(groups), column(moved)
    for prompt in groups:
        assert shifted[prompt] == [a if a is None else pytest.approx(a, abs=1e-9) for a in straight[prompt]]


def test_interleaved_groups_give_the_same_as_groups_in_a_row():
    table = frame({"a": [1, 1, 0, 0], "b": [1, 2, 5, 8]})
    interleaved = table[[0, 4, 1, 5, 2, 6, 3, 7]]
    assert rloo(interleaved).sort(KEY).equals(rloo(table))


@pytest.mark.parametrize(
    ("rewards", "correct", "kind", "n_scorable"),
    [
        ([1, 1, 1], 1.0, "all_correct", 3),
        ([2, 2, 2], 1.0, "all_correct", 3),
        ([1, None, 1], 1.0, "all_correct", 2),
        ([0, 0, 0], 1.0, "all_wrong", 3),
        ([0, None, 0], 1.0, "all_wrong", 2),
        ([0.5, 0.5], 1.0, "all_equal", 2),
        ([-1, -1], 1.0, "all_wrong", 2),
        ([0.5, 0.5], 0.5, "all_correct", 2),
        ([1, 0], 1.0, "mixed", 2),
        ([2, 1], 1.0, "mixed", 2),
        ([1, None, 0], 1.0, "mixed", 2),
        ([1 / 3, 1 - 2 / 3], 1.0, "all_equal", 2),  # equal but for rounding
        ([None, None], 1.0, "unscorable", 0),
    ],
)
def test_group_kind(rewards, correct, kind, n_scorable):
    described = describe_groups(frame({"p": rewards, "other": [0, 1]}), Advantage(correct_reward=correct)).filter(
        pl.col("prompt_id") == "p"
    )
    assert described["group_kind"].to_list() == [kind] * len(rewards)
    assert described["n_scorable"].to_list() == [n_scorable] * len(rewards)
    assert described["group_size"].to_list() == [len(rewards)] * len(rewards)


def test_kind_speaks_of_the_task_reward_not_of_the_score():
    table = frame({"p": [1, 1]}).with_columns(score=pl.Series([0.9, 0.7]))
    assert set(describe_groups(table, Advantage())["group_kind"]) == {"all_correct"}


def test_kind_speaks_of_the_reward_that_is_named(params):
    """A penalty beside the reward of the task makes no group mixed, or all wrong."""
    raw = params.model_dump()
    raw["score"]["rewards"]["length"] = raw["score"]["rewards"]["constraints"]
    raw["advantage"] |= {"outcome_reward": "constraints", "wrong_reward": -1.0}
    table = frame({"a": [0.5, 0.0], "b": [-1.5, -1.0], "c": [1.0, -1.0]})
    table = table.with_columns(pl.Series("reward/constraints", [1.0, 1.0, -1.0, -1.0, 1.0, -1.0]))
    found = advantage_table(table, parse_params(raw, "params.yaml"), [])
    assert found["group_kind"].to_list() == ["all_correct"] * 2 + ["all_wrong"] * 2 + ["mixed"] * 2
    with pytest.raises(TableError, match="no column reward/constraints"):
        advantage_table(table.drop("reward/constraints"), parse_params(raw, "params.yaml"), [])


def test_reasons_and_membership_of_the_loss():
    groups = {"a": [1, None, 0], "b": [1, None], "c": [1, 2, 3]}
    found = decide_loss(rloo(describe_groups(frame(groups), Advantage())), "rloo")
    outside = "not scorable: outside baseline and loss"
    assert list(zip(found["in_loss"], found["reason"], strict=True)) == [
        (True, "counted"),
        (False, outside),
        (True, "counted"),
        (False, "no scorable sibling to compare with"),
        (False, outside),
        (True, "counted"),
        (True, "counted: equal to its baseline, advantage 0"),
        (True, "counted"),
    ]


@pytest.fixture(scope="module")
def params():
    return load_params(FILE)


def scores_table():
    kl = [2.0, 1.0, 0.0, 0.0, 1.0, 3.0, 0.5]
    table = frame({"a": [1, 0], "b": [1, None, 0], "c": [None, 1]})
    return table.with_columns(kl=pl.Series(kl)).with_columns(score=pl.col("task_reward") - 0.05 * pl.col("kl"))


def test_whole_table(params):
    table = advantage_table(scores_table(), params, [])
    assert table.columns == list(ADVANTAGES)
    rows = table.select("prompt_id", "sample", "group_size", "n_scorable", "group_kind", "in_loss").rows()
    assert rows == [
        ("a", 0, 2, 2, "mixed", True),
        ("a", 1, 2, 2, "mixed", True),
        ("b", 0, 3, 2, "mixed", True),
        ("b", 1, 3, 2, "mixed", False),
        ("b", 2, 3, 2, "mixed", True),
        ("c", 0, 2, 1, "all_correct", False),
        ("c", 1, 2, 1, "all_correct", False),
    ]
    # a: .9 and -.05    b: 1, -, -.05    c: one scorable row
    assert table["score"].to_list() == approx([0.9, -0.05, 1.0, None, -0.05, None, 0.975])
    assert table["baseline"].to_list() == approx([-0.05, 0.9, -0.05, None, 1.0, None, None])
    assert table["advantage"].to_list() == approx([0.95, -0.95, 1.05, None, -1.05, None, None])


def test_table_uses_the_correct_reward_of_params():
    raw = yaml.safe_load(FILE.read_text()) | {"advantage": {"correct_reward": 2.0}}
    table = advantage_table(frame({"a": [1, 1], "b": [2, 2]}), parse_params(raw, "params.yaml"), [])
    assert table["group_kind"].to_list() == ["all_equal", "all_equal", "all_correct", "all_correct"]


def test_a_score_that_is_not_finite_is_refused_with_its_key(params):
    broken = scores_table().with_columns(score=pl.lit(float("inf")))
    with pytest.raises(TableError, match=r"advantage is finite\. First: iteration=1, prompt_id=a, sample=0"):
        advantage_table(broken, params, [])
