"""Stage `advantage`: scores.parquet, and what the table of the previous iteration carries -> advantages.parquet."""

import polars as pl

from stages.advantage.estimate import CENTRED, estimate
from stages.advantage.groups import decide_loss, describe_groups
from stages.advantage.moving_average import Carried, carry_on
from stages.advantage.steps import clip, normalise
from stages.advantage.token_kl import reward_to_go
from stages.common import paths
from stages.common.errors import StageError
from stages.common.gate import check_advantages, check_centred, check_finite, check_same_keys
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.tables import ADVANTAGES, GROUP, KEY, SCORES, read_table, write_table


def advantage_table(scores: pl.DataFrame, params: Params, carried: Carried) -> pl.DataFrame:
    """The advantages of one iteration's scores, checked. `carried` is what `read_carried` found."""
    options = params.advantage
    columns = (*KEY, "task_reward", "score", "accepted", "token_kl")
    needed = scores.select(*columns, length=pl.col("ref_logprobs").list.len())
    described = describe_groups(needed, options.correct_reward)
    counted = (pl.col("kind") == "sample") & pl.col("accepted")
    greedy = described.filter(pl.col("kind") == "greedy")
    estimated = estimate(described.filter(counted), greedy, carried, options)
    check_finite(estimated)
    if options.estimator in CENTRED:
        check_centred(estimated)
    shaped = shape(estimated.with_columns(token_advantages=pl.lit(None, dtype=pl.List(pl.Float64))), params)
    state = carry_on(carried, estimated["score"], options.moving_average)
    together = pl.concat([shaped, described.filter(~counted)], how="diagonal").with_columns(
        estimator=pl.lit(options.estimator),
        carried=pl.lit(state if options.estimator == "moving_average" else None, dtype=pl.List(pl.Float64)),
    )
    table = decide_loss(together, options.estimator).select(list(ADVANTAGES))
    check_same_keys(table, scores, "advantages", "scores")
    check_advantages(table)
    return table


def shape(estimated: pl.DataFrame, params: Params) -> pl.DataFrame:
    """The named steps after the estimator, those that are on."""
    if beta := params.score.kl.beta_in("reward_to_go"):
        estimated = reward_to_go(estimated, beta)
    if params.advantage.normalise == "batch":
        estimated = normalise(estimated)
    if params.advantage.clip is not None:
        estimated = clip(estimated, params.advantage.clip)
    return estimated


def read_carried(name: str, params: Params) -> Carried:
    """The past that a moving average goes on from, out of the table of the previous iteration."""
    if params.advantage.estimator != "moving_average":
        return []
    before = paths.previous(name)
    table = read_table(paths.advantages(before), ADVANTAGES, KEY)
    if before == paths.INITIAL:
        return []
    if table["carried"].null_count():
        raise StageError(
            f"{paths.advantages(before)} carries no moving average: another estimator made it. "
            f"Run its stage again: python -m stages.advantage {before}"
        )
    return list(table["carried"][0])


def run(name: str, params: Params, journal: Journal) -> None:
    scores = read_table(paths.scores(name), SCORES, KEY)
    table = advantage_table(scores, params, read_carried(name, params))
    write_table(table, ADVANTAGES, KEY, paths.advantages(name))
    kinds = table.unique(GROUP)["group_kind"].value_counts(sort=True)
    journal.say(", ".join(f"{count} groups {kind}" for kind, count in kinds.rows()))
