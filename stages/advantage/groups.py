"""What kind of group a row is in, and why the row counts in the loss or does not."""

import polars as pl

from stages.common.params import Advantage
from stages.common.signal import has_advantage
from stages.common.tables import EQUAL, GROUP


def describe_groups(scores: pl.DataFrame, options: Advantage) -> pl.DataFrame:
    """Add `group_size`, `n_scorable` and `group_kind`, all of samples only: a greedy row belongs to the group, but does
    not count. Kinds speak of the `outcome` column: a reward, before any KL.
    """
    is_sample = pl.col("kind") == "sample"
    reward = pl.when(is_sample).then(pl.col("outcome"))
    low, high = reward.min().over(GROUP), reward.max().over(GROUP)
    kind = (
        pl.when(high.is_null())
        .then(pl.lit("unscorable"))
        .when(high - low > EQUAL)
        .then(pl.lit("mixed"))
        .when(low >= options.correct_reward - EQUAL)
        .then(pl.lit("all_correct"))
        .when(high <= options.wrong_reward + EQUAL)
        .then(pl.lit("all_wrong"))
        .otherwise(pl.lit("all_equal"))
    )
    return scores.with_columns(
        group_size=is_sample.sum().over(GROUP),
        n_scorable=pl.when(is_sample).then(pl.col("score")).count().over(GROUP),
        group_kind=kind,
    )


def decide_loss(advantages: pl.DataFrame, estimator: str) -> pl.DataFrame:
    """Add `in_loss` and the `reason`, in words that stand in the table for whoever asks why a row counted."""
    reason = (
        pl.when(pl.col("kind") == "greedy")
        .then(pl.lit("greedy completion: a baseline, never in the loss"))
        .when(~pl.col("accepted"))
        .then(pl.lit("its group has no signal: left out by dynamic sampling"))
        .when(pl.col("score").is_null())
        .then(pl.lit("not scorable: outside baseline and loss"))
        .when(pl.col("advantage").is_null())
        .then(_why_left_out(estimator))
        .when(~has_advantage())
        .then(pl.lit("counted: equal to its baseline, advantage 0"))
        .otherwise(pl.lit("counted"))
    )
    return advantages.with_columns(in_loss=pl.col("advantage").is_not_null(), reason=reason)


def _why_left_out(estimator: str) -> pl.Expr:
    """Why a scorable row has no advantage."""
    lonely = pl.lit("no scorable sibling to compare with")
    if estimator == "remax":
        return pl.lit("the greedy completion of its prompt is not scorable")
    if estimator == "raft":
        return pl.lit("left out by the estimator: not the best of its group")
    return lonely
