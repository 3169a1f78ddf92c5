"""Stage `score`: rollouts.parquet -> scores.parquet. Rewards of the task, the log-probs of the reference policy, and
the values of the critic, if there is one.
"""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.critic import Critic
from stages.common.gate import check_reference, check_same_keys, check_scores, check_token_values, refuse
from stages.common.journal import Journal
from stages.common.logprobs import completion_logprobs, reads_one_by_one
from stages.common.packing import groups_of
from stages.common.params import Params
from stages.common.policy import Models
from stages.common.positions import positions_of
from stages.common.tables import KEY, SCORES, reward_schema, write_table
from stages.critic import values
from stages.score.kl import add_kl, add_score
from stages.score.rows import rollout_rows, score_rows

PASSES = "passes of the reference"


def add_reference(
    rows: pl.DataFrame, models: Models, temperature: float, max_tokens: int, journal: Journal
) -> pl.DataFrame:
    """Add `ref_logprobs` of the KL's reference, at the sampling temperature."""
    groups = groups_of(rows.with_row_index("index"))
    with models.kl_reference() as reference:
        check_readable(rows, reference)
        one_by_one = reads_one_by_one(reference, journal)
        found = completion_logprobs(
            reference,
            groups,
            temperature,
            max_tokens,
            one_by_one=one_by_one,
            progress=lambda done, total: journal.progress(done, total, PASSES),
            kept_as=PASSES,
        )
    column = pl.Series("ref_logprobs", [found[i] for i in range(rows.height)], dtype=pl.List(pl.Float32))
    return rows.with_columns(column)


def check_readable(rows: pl.DataFrame, reference: Any) -> None:
    """Another reference than the initial policy may have fewer token ids, or fewer positions."""
    ids, table = int(reference.get_input_embeddings().weight.shape[0]), "rows for the reference (prepare.reference)"
    largest = pl.col("completion_ids").list.max()
    refuse(rows, largest >= ids, table, f"token ids are below {ids}, for which it has weights")
    limit = positions_of(reference.config)
    if limit is not None:
        length = pl.col("prompt_ids").list.len() + pl.col("completion_ids").list.len()
        refuse(rows, length > limit, table, f"prompt and completion have at most {limit} tokens, its positions")


def no_reference(rows: pl.DataFrame) -> pl.DataFrame:
    """`ref_logprobs` that are null: nothing is penalised by the KL, and no reference is loaded to measure it."""
    return rows.with_columns(ref_logprobs=pl.lit(None, dtype=SCORES["ref_logprobs"]))


def add_values(rows: pl.DataFrame, critic: Critic | None, max_tokens: int, journal: Journal) -> pl.DataFrame:
    """Add the critic's `values` before each token; null without a critic."""
    if critic is None:
        return rows.with_columns(values=pl.lit(None, dtype=SCORES["values"]))
    found = values.completion_values(
        critic.model,
        groups_of(rows.with_row_index("index")),
        max_tokens,
        one_by_one=values.reads_one_by_one(critic.model, journal),
        progress=lambda done, total: journal.progress(done, total, "passes of the critic"),
    )
    return rows.with_columns(values=pl.Series([found[i] for i in range(rows.height)], dtype=SCORES["values"]))


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    rows = rollout_rows(name)
    critic = models.critic(paths.critic(paths.previous(name)))
    rewards = score_rows(params.score.rewards, rows, models, params.score)
    temperature, max_tokens = params.rollout.temperature, params.score.pack_tokens
    beta = params.score.kl.beta
    referenced = add_kl(add_reference(rows, models, temperature, max_tokens, journal) if beta else no_reference(rows))
    referenced = add_values(referenced, critic, max_tokens, journal)
    scored = add_score(referenced.hstack(rewards), params.score.kl.beta_in("reward"))
    counts = (pl.col("kind") == "sample") & pl.col("accepted")
    table = scored.with_columns(in_baseline=counts & pl.col("task_reward").is_not_null())
    schema = SCORES | reward_schema(list(params.score.rewards))
    check_token_values(table)
    table = table.select(list(schema))
    check_same_keys(table, rows, "scores", "rollouts")
    check_scores(table)
    check_reference(table, wanted=beta > 0)
    write_table(table, schema, KEY, paths.scores(name))
    journal.say(_summary(table.filter(kind="sample")))


def _summary(table: pl.DataFrame) -> str:
    unscorable = table["task_reward"].null_count()
    reward, kl = table.select(pl.col("task_reward").mean(), pl.col("kl").mean()).row(0)
    shown = "none" if reward is None else f"{reward:.3f}"
    nats = "no KL, as beta is 0" if kl is None else f"KL {kl:.3f} nats per sequence"
    return f"task reward {shown}, {nats}, {unscorable} of {table.height} rows not scorable"
