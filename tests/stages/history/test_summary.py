"""summary.json: the numbers that experiments are compared by, taken from hand-made histories."""

import polars as pl
import pytest

from stages.history.summary import summary

ROWS = [
    {"iteration": 0, "eval/reward": 0.25, "eval/reward_low": 0.1, "eval/reward_high": 0.3, "eval/kl": 0.0},
    {"iteration": 1, "reward": 0.1, "kl": 0.5, "num_tokens": 10, "grad_norm": 3.0},
    {
        "iteration": 2,
        "reward": 0.2,
        "kl": 0.6,
        "num_tokens": 20,
        "eval/reward": 1 / 3,
        "eval/reward_low": 0.2,
        "eval/reward_high": 0.5,
        "eval/kl": 0.7,
        "eval/rewards/gold/mean": 0.9,
    },
    {"iteration": 3, "reward": 0.3, "kl": 0.8, "num_tokens": 30},
]


def frame(*numbers):
    return pl.DataFrame([ROWS[number] for number in numbers], infer_schema_length=None)


def test_the_last_iteration_and_the_last_evaluation_unrounded():
    assert summary(frame(0, 1, 2, 3), ["gold"]) == {
        "iterations": 3,
        "num_tokens": 30,
        "reward": 0.3,
        "kl": 0.8,
        "eval/iteration": 2,
        "eval/reward": 1 / 3,
        "eval/reward_low": 0.2,
        "eval/reward_high": 0.5,
        "eval/kl": 0.7,
        "eval/rewards/gold/mean": 0.9,
        "eval/gain": 1 / 3 - 0.25,
    }


@pytest.mark.parametrize("rows", [(1, 2, 3), (0, 1)])
def test_no_gain_without_the_initial_policy_or_without_another_evaluation(rows):
    assert "eval/gain" not in summary(frame(*rows))


def test_a_history_without_evaluations():
    assert summary(frame(1, 3).drop("grad_norm")) == {"iterations": 3, "num_tokens": 30, "reward": 0.3, "kl": 0.8}


def test_a_reward_that_nothing_could_score_is_left_out_and_not_zero():
    unscorable = frame(0, 1, 2, 3).with_columns(reward=pl.when(pl.col("iteration") == 3).then(None).otherwise("reward"))
    assert "reward" not in summary(unscorable)
