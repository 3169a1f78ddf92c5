"""The history's numbers, on small tables with the values written out."""

import math
import random

import polars as pl
import pytest

from stages.common.tables import CRITIC_STEPS
from stages.history.diagnostics import (
    GROUP_KINDS,
    critic_metrics,
    group_metrics,
    ratio_metrics,
    share_metrics,
    spread_metrics,
    token_metrics,
)
from stages.history.rows import (
    completion_metrics,
    reward_metrics,
    step_metrics,
    token_count,
)


def scores(groups, **columns):
    rows = [
        {"iteration": 1, "prompt_id": prompt, "sample": number, "kind": "sample", "task_reward": value}
        for prompt, values in groups.items()
        for number, value in enumerate(values)
    ]
    frame = pl.DataFrame(rows, schema_overrides={"task_reward": pl.Float64})
    frame = frame.with_columns(score=pl.col("task_reward") - 0.5, kl=pl.lit(2.0))
    return frame.with_columns(**{name: pl.Series(values, dtype=pl.Float64) for name, values in columns.items()})


def test_reward_metrics():
    table = scores(
        {"a": [1, 0], "b": [0.5, 0.5], "c": [1, None], "d": [None, None]},
        kl=[1, 3, 0, 0, 2, 2, 4, 4],
        **{"reward/x": [1, 0, 0.5, 0.5, 1, None, None, None], "reward/y": [2, 2, 2, 2, 2, 2, 2, 4]},
    )
    assert reward_metrics(table) == {
        "reward": pytest.approx((1 + 0 + 0.5 + 0.5 + 1) / 5),
        "reward_std": pytest.approx((math.sqrt(0.5) + 0) / 2),  # n - 1; c and d have no deviation
        "rewards/x/mean": pytest.approx(3 / 5),
        "rewards/y/mean": pytest.approx(18 / 8),
        "frac_reward_zero_std": pytest.approx(1 / 2),  # b; not c with its one scorable row, nor d with none
        "frac_unscorable": pytest.approx(3 / 8),
        "score": pytest.approx(3 / 5 - 0.5),
        "kl": pytest.approx(2.0),
    }


def test_reward_std_is_within_groups_not_over_the_table():
    assert reward_metrics(scores({"a": [1, 1], "b": [0, 0]}))["reward_std"] == 0.0
    assert reward_metrics(scores({"a": [1, 0], "b": [1, 0]}))["reward_std"] == pytest.approx(math.sqrt(0.5))


def test_means_of_an_iteration_without_any_reward_are_null():
    found = reward_metrics(scores({"a": [None, None]}))
    assert found["reward"] is found["reward_std"] is found["score"] is None
    assert found["frac_unscorable"] == 1.0


def test_groups_are_those_of_the_key_not_of_their_place():
    table = scores({"a": [1, 0], "b": [1, 1], "c": [0, 0]})
    order = list(range(table.height))
    random.Random(1).shuffle(order)
    straight, shuffled = reward_metrics(table), reward_metrics(table[order])
    assert shuffled == pytest.approx(straight)


def test_same_table_gives_the_same_bits():
    rng = random.Random(0)
    table = scores({f"p{i}": [rng.choice([0, 1 / 3, 2 / 3, 1]) for _ in range(4)] for i in range(500)})
    assert len({reward_metrics(table)["reward_std"] for _ in range(60)}) == 1


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["mixed", "mixed", "all_wrong", "all_correct"], {"mixed": 0.5, "all_wrong": 0.25, "all_correct": 0.25}),
        (["unscorable", "all_equal"], {"unscorable": 0.5, "all_equal": 0.5}),
        (["mixed"], {"mixed": 1.0}),
    ],
)
def test_group_metrics_count_groups_not_rows(kinds, expected):
    rows = [
        {"iteration": 1, "prompt_id": f"p{place}", "group_kind": kind}
        for place, kind in enumerate(kinds)
        for _ in range(place + 2)
    ]
    found = group_metrics(pl.DataFrame(rows))
    assert found == {f"groups/{kind}": expected.get(kind, 0.0) for kind in GROUP_KINDS}
    assert sum(found.values()) == pytest.approx(1.0)


ROLLOUTS = pl.DataFrame(
    {
        "prompt_id": ["a", "a", "b", "b"],
        "entropy": [0.5, 1.5, 1.0, 2.0],
        "length": [10, 20, 48, 48],
        "finish_reason": ["stop", "stop", "length", "empty"],
    },
    schema_overrides={"entropy": pl.Float32, "length": pl.Int32},
)


def test_completion_metrics():
    assert completion_metrics(ROLLOUTS) == {
        "entropy": 1.25,
        "completions/mean_length": 31.5,
        "completions/min_length": 10,
        "completions/max_length": 48,
        "completions/clipped_ratio": 0.25,
    }


def test_tokens_are_those_of_completions_and_of_their_prompts():
    prompts = pl.DataFrame({"prompt_id": ["b", "a", "unused"], "prompt_ids": [[1] * 5, [1] * 3, [1] * 100]})
    assert token_count(ROLLOUTS, prompts) == (10 + 20 + 48 + 48) + (3 + 3 + 5 + 5)


def test_step_metrics():
    steps = pl.DataFrame(
        {
            "loss": [1.0, 3.0],
            "grad_norm": [0.5, 1.5],
            "learning_rate": [1e-3, 2e-3],
            "optimizer_step": [7, 8],
        }
    )
    assert step_metrics(steps) == {
        "loss": 2.0,
        "grad_norm": 1.0,
        "learning_rate": 2e-3,  # the last one
        "optimizer_steps": 8,
    }


def test_ratio_metrics_keep_the_extremes():
    steps = pl.DataFrame(
        {
            "approx_kl": [0.0, 0.5],
            "ratio_mean": [1.0, 1.2],
            "ratio_min": [0.9, 0.5],
            "ratio_max": [1.1, 1.4],
            "clip_low": [0.0, 0.1],
            "clip_high": [0.0, 0.3],
            "clip_dual": [0.0, 0.1],
            "importance_mean": [None, None],
            "importance_outside": [None, None],
            "kl_loss": [0.0, 0.2],
        },
        schema_overrides={"importance_mean": pl.Float64, "importance_outside": pl.Float64},
    )
    assert ratio_metrics(steps) == {
        "approx_kl": 0.25,
        "ratio/mean": pytest.approx(1.1),
        "ratio/min": 0.5,
        "ratio/max": 1.4,
        "clip_ratio/low": 0.05,
        "clip_ratio/high": 0.15,
        "clip_ratio/dual": 0.05,
        "importance/mean": None,
        "importance/outside": None,
        "kl_loss": 0.1,
    }


def test_critic_metrics_are_means_and_nothing_without_a_critic():
    steps = {"value_loss": [0.5, 0.25], "value_clip": [0.0, 0.5], "explained_variance": [None, 0.5]}
    assert critic_metrics(pl.DataFrame(steps)) == {"value_loss": 0.375, "value_clip": 0.25, "explained_variance": 0.5}
    assert critic_metrics(pl.DataFrame(schema=CRITIC_STEPS)) == {}


def test_spread_by_group_size_and_by_length():
    # a: std of [1, 0] is sqrt(.5); b: of [1, 0, 0], mean 1/3: sqrt((4 + 1 + 1) / 9 / 2); c: 0; d: one scorable row
    table = scores({"a": [1, 0, None], "b": [1, 0, 0], "c": [1, 1], "d": [1, None]})
    lengths = pl.Series([10, 30, 50, 5, 5, 5, 40, 60, 1, 1])  # means 30, 5, 50; d is in no quartile
    a, b = math.sqrt(0.5), math.sqrt(6 / 9 / 2)
    assert spread_metrics(table.with_columns(length=lengths)) == {
        "reward_std/size_2": pytest.approx((a + 0) / 2),
        "reward_std/size_3": pytest.approx(b),
        "reward_std/length_q1": pytest.approx(b),
        "reward_std/length_q2": pytest.approx(a),
        "reward_std/length_q3": pytest.approx(0.0),
        "reward_std/length_q4": None,
    }


def test_sampled_and_accepted_tokens():
    rows = [("a", "sample", True, 5), ("a", "sample", True, 6), ("b", "sample", False, 7), ("b", "sample", False, 8)]
    rows.append(("a", "greedy", True, 100))
    table = pl.DataFrame(rows, schema=["prompt_id", "kind", "accepted", "length"], orient="row")
    assert token_metrics(table.with_columns(iteration=pl.lit(1))) == {
        "groups/sampled": 2,
        "groups/accepted": 1,
        "tokens/sampled": 126,
        "tokens/accepted": 11,
    }


def test_gradient_shares_have_a_column_each():
    table = pl.DataFrame(
        {
            "reduction": ["token_mean"] * 2 + ["response_mean"] * 2,
            "quartile": [2, 1] * 2,
            "share": [0.75, 0.25, 0.5, 0.5],
        }
    )
    assert share_metrics(table) == {
        "grad_share/response_mean/q1": 0.5,
        "grad_share/response_mean/q2": 0.5,
        "grad_share/token_mean/q1": 0.25,
        "grad_share/token_mean/q2": 0.75,
    }
