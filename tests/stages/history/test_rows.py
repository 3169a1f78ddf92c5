"""The history's numbers, on small tables with the values written out."""

import math
import random

import polars as pl
import pytest

from stages.history.rows import (
    GROUP_KINDS,
    completion_metrics,
    group_metrics,
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
            "approx_kl": [0.0, 0.5],
            "optimizer_step": [7, 8],
        }
    )
    assert step_metrics(steps) == {
        "loss": 2.0,
        "grad_norm": 1.0,
        "learning_rate": 2e-3,  # the last one
        "approx_kl": 0.25,
        "optimizer_steps": 8,
    }
