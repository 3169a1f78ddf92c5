"""Stage `advantage`: scores.parquet, and what the table of the previous iteration carries -> advantages.parquet."""

import polars as pl

from stages.advantage.estimate import CENTRED, estimate
from stages.advantage.groups import decide_loss, describe_groups
from stages.advantage.moving_average import Carried, carry_on
from stages.advantage.steps import clip, normalise
from stages.advantage.token_kl import reward_to_go
from stages.common import paths
from stages.common.errors import StageError
from stages.common.gate import check_advantages, check_centred, check_finite, check_returns, check_same_keys
from stages.common.journal import Journal
from stages.common.params import Advantage, Params
from stages.common.tables import ADVANTAGES, GROUP, KEY, SCORES, TableError, read_table, write_table

NONE = pl.lit(None, dtype=pl.List(pl.Float64))


def advantage_table(scores: pl.DataFrame, params: Params, carried: Carried) -> pl.DataFrame:
    """The advantages of one iteration's scores, checked. `carried` is what `read_carried` found."""
    described = describe_groups(needed_columns(scores, params.advantage), params.advantage)
    counted = (pl.col("kind") == "sample") & pl.col("accepted")
    greedy = described.filter(pl.col("kind") == "greedy")
    to_go = params.score.kl.beta_in("reward_to_go")
    estimated = estimate(described.filter(counted), greedy, carried, params.advantage, to_go)
    check_finite(estimated)
    if params.advantage.estimator in CENTRED:
        check_centred(estimated)
    shaped = shape(with_token_columns(estimated), params)
    together = pl.concat([shaped, described.filter(~counted)], how="diagonal")
    decided = decide_loss(together, params.advantage.estimator)
    check_same_keys(decided, scores, "advantages", "scores")
    check_advantages(decided)
    if params.advantage.estimator == "gae":
        check_returns(decided)
    return hand_on(decided, estimated["score"], carried, params).select(list(ADVANTAGES))


def needed_columns(scores: pl.DataFrame, options: Advantage) -> pl.DataFrame:
    """What the estimators and the classes of groups read, as declared columns."""
    outcome = "task_reward" if options.outcome_reward is None else f"reward/{options.outcome_reward}"
    if outcome not in scores.columns:
        raise TableError(f"scores: no column {outcome}, which advantage.outcome_reward names; score again")
    columns = (*KEY, "length", "task_reward", "score", "accepted", "token_kl", "ref_logprobs", "values")
    return scores.select(*columns, outcome=pl.col(outcome))


def with_token_columns(estimated: pl.DataFrame) -> pl.DataFrame:
    """With `token_advantages` and `returns`, null where the estimator gives none."""
    absent = [name for name in ("token_advantages", "returns") if name not in estimated.columns]
    return estimated.with_columns(NONE.alias(name) for name in absent)


def hand_on(table: pl.DataFrame, scores: pl.Series, carried: Carried, params: Params) -> pl.DataFrame:
    """Add which estimator it was, and what the update and the next iteration need beside the advantages."""
    options = params.advantage
    average = options.moving_average if options.estimator == "moving_average" else None
    reference = pl.col("ref_logprobs") if params.score.kl.beta_in("loss") else pl.lit(None)
    return table.with_columns(
        estimator=pl.lit(options.estimator),
        ref_logprobs=reference.cast(ADVANTAGES["ref_logprobs"]),
        carried=pl.lit(carry_on(carried, scores, average) if average else None, dtype=pl.List(pl.Float64)),
        carried_form=pl.lit(average.form if average else None, dtype=pl.String),
    )


def shape(estimated: pl.DataFrame, params: Params) -> pl.DataFrame:
    """The named steps after the estimator, those that are on. To gae the KL of the tokens is a reward already."""
    beta = params.score.kl.beta_in("reward_to_go")
    if beta and params.advantage.estimator != "gae":
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
    form = params.advantage.moving_average.form
    if table.filter(carried_form=form).height < table.height:
        raise StageError(
            f"{paths.advantages(before)} carries no moving average of the form {form}: other options made it. "
            f"Run its stage again: python -m stages.advantage {before}"
        )
    return list(table["carried"][0])


def run(name: str, params: Params, journal: Journal) -> None:
    scores = read_table(paths.scores(name), SCORES, KEY)
    table = advantage_table(scores, params, read_carried(name, params))
    write_table(table, ADVANTAGES, KEY, paths.advantages(name))
    kinds = table.unique(GROUP)["group_kind"].value_counts(sort=True)
    journal.say(", ".join(f"{count} groups {kind}" for kind, count in kinds.rows()))
