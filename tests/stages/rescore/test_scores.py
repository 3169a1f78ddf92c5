"""The new scores table of hand-made rows: what is new, and what is taken from the old one as it is."""

import polars as pl
import pytest

from stages.common.errors import StageError
from stages.common.params import Reward
from stages.common.tables import KEY, SCORES
from stages.rescore.checks import check_past
from stages.rescore.scores import KEPT, scores_table
from stages.score.rewards import add_task_reward
from tests.stages.compare.hand import params_of, side

NATS = {"p": [2.0, 1.0, -1.0]}


def old_scores(beta=0.1, **columns):
    scores = side({"p": {"old": [1.0, 0.0, None]}}, kl=NATS, score__kl={"beta": beta}).scores
    return scores.with_columns(
        values=pl.Series([[0.5, 0.25]] * 3, dtype=SCORES["values"]), entropy=pl.lit(0.5, dtype=pl.Float32)
    ).with_columns(**columns)


def new_rewards(*values, weight=1.0):
    statuses = ["ok" if value is not None else "timeout" for value in values]
    frame = pl.DataFrame(
        {"reward/new": values, "status/new": statuses, "message/new": [None] * len(values)},
        schema={"reward/new": pl.Float64, "status/new": pl.String, "message/new": pl.String},
    )
    return add_task_reward(frame, {"new": Reward(function="m:f", weight=weight)})


def test_only_the_rewards_and_what_follows_from_them_are_new():
    old = old_scores()
    table = scores_table(old.select(KEY), old, new_rewards(None, 3.0, 1.0, weight=2.0), params_of(score__kl__beta=0.1))
    assert table.select(KEPT).equals(old.select(KEPT))
    assert table["task_reward"].to_list() == [None, 6.0, 2.0]
    assert table["score"].to_list() == [None, 6.0 - 0.1 * 1.0, 2.0 + 0.1 * 1.0]
    assert table["in_baseline"].to_list() == [False, True, True]
    assert "reward/old" not in table.columns
    assert set(SCORES) - set(KEPT) - set(KEY) == {"task_reward", "score", "in_baseline"}


def test_rows_are_found_by_key_and_not_by_position():
    old = old_scores()
    straight = scores_table(old.select(KEY), old, new_rewards(0.0, 1.0, 2.0), params_of())
    shuffled = scores_table(old.select(KEY), old.reverse(), new_rewards(0.0, 1.0, 2.0), params_of())
    assert straight.equals(shuffled)


def test_without_a_reference_null_columns_stay_null_and_nothing_is_taken_off():
    gone = {name: pl.lit(None, dtype=SCORES[name]) for name in ("kl", "ref_logprobs", "token_kl", "ref_logp_sum")}
    old = old_scores(0.0, **gone)
    table = scores_table(old.select(KEY), old, new_rewards(0.5, None, 1.0), params_of())
    assert table["score"].to_list() == [0.5, None, 1.0]
    assert all(table[name].null_count() == 3 for name in gone)


def test_rows_that_dynamic_sampling_left_out_stay_so():
    old = old_scores(accepted=pl.lit(value=False), in_baseline=pl.lit(value=False))
    table = scores_table(old.select(KEY), old, new_rewards(1.0, 0.0, 1.0), params_of())
    assert not table["accepted"].any()
    assert not table["in_baseline"].any()
    assert table["score"].null_count() == 0


@pytest.mark.parametrize(
    ("chosen", "ready", "ok"),
    [
        (["i0001", "i0002"], [], True),
        (["i0003"], ["i0002"], True),
        (["i0003"], [], False),
        (["i0001", "i0003"], [], False),
    ],
)
def test_a_moving_average_has_no_gaps(chosen, ready, ok):
    params = params_of(advantage__estimator="moving_average")
    check_past(chosen, ready, params_of())
    if ok:
        check_past(chosen, ready, params)
    else:
        with pytest.raises(StageError, match="give i0001-i0003"):
            check_past(chosen, ready, params)
