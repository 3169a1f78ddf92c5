"""Stage `score`: rollouts.parquet -> scores.parquet. Rewards of the task, the log-probs of the reference policy, and
the values of the critic, if there is one.
"""

import polars as pl

from stages.common import paths
from stages.common.critic import Critic
from stages.common.errors import StageError
from stages.common.gate import check_same_keys, check_scores, check_token_values, refuse
from stages.common.journal import Journal
from stages.common.logprobs import completion_logprobs, takes_block_mask
from stages.common.packing import groups_of
from stages.common.params import Params
from stages.common.policy import Models
from stages.common.tables import KEY, PROMPTS, ROLLOUTS, SCORES, read_table, reward_schema, write_table
from stages.critic import values
from stages.score.kl import add_kl, add_score
from stages.score.model_reward import all_rewards


def add_reference(
    rows: pl.DataFrame, models: Models, temperature: float, max_tokens: int, journal: Journal
) -> pl.DataFrame:
    """Add `ref_logprobs`, at the sampling temperature; with beta = 0 too, as the KL is reported all the same."""
    groups = groups_of(rows.with_row_index("index"))
    with models.reference() as reference:
        one_by_one = not takes_block_mask(reference)
        if one_by_one:
            journal.say("this model does not take a block mask: one completion per forward pass")
        found = completion_logprobs(
            reference,
            groups,
            temperature,
            max_tokens,
            one_by_one=one_by_one,
            progress=lambda done, total: journal.progress(done, total, "passes of the reference"),
        )
    column = pl.Series("ref_logprobs", [found[i] for i in range(rows.height)], dtype=pl.List(pl.Float32))
    return rows.with_columns(column)


def add_values(rows: pl.DataFrame, critic: Critic | None, max_tokens: int, journal: Journal) -> pl.DataFrame:
    """Add the critic's `values` before each token; null without a critic."""
    if critic is None:
        return rows.with_columns(values=pl.lit(None, dtype=SCORES["values"]))
    found = values.completion_values(
        critic.model,
        groups_of(rows.with_row_index("index")),
        max_tokens,
        one_by_one=not values.takes_block_mask(critic.model),
        progress=lambda done, total: journal.progress(done, total, "passes of the critic"),
    )
    return rows.with_columns(values=pl.Series([found[i] for i in range(rows.height)], dtype=SCORES["values"]))


def score_rows(rows: pl.DataFrame, params: Params, models: Models) -> pl.DataFrame:
    """The rewards of all rows, in their order. Greedy rows are scored in a call of their own: what a function makes of
    the samples must not depend on whether there are any.
    """
    numbered, score = rows.with_row_index("_row"), params.score
    kinds = [numbered.filter(kind=kind) for kind in ("sample", "greedy")]
    scored = [
        all_rewards(
            score.rewards, part.drop("_row"), models, score.pack_tokens, max_failed=score.max_failed
        ).with_columns(part["_row"])
        for part in kinds
        if part.height
    ]
    return pl.concat(scored).sort("_row").drop("_row")


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    rollouts = read_table(paths.rollouts(name), ROLLOUTS, KEY)
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",))
    shared = sorted(set(rollouts.columns) & set(prompts.columns) - {"prompt_id"})
    if shared:
        raise StageError(f"{paths.PROMPTS}: columns {shared} have names that rollouts use; rename them in the dataset")
    rows = rollouts.join(prompts, on="prompt_id", how="left", maintain_order="left")
    refuse(rows, pl.col("prompt_ids").is_null(), str(paths.rollouts(name)), f"its prompt is in {paths.PROMPTS}")
    critic = models.critic(paths.critic(paths.previous(name)))
    rewards = score_rows(rows, params, models)
    temperature, max_tokens = params.rollout.temperature, params.score.pack_tokens
    referenced = add_kl(add_reference(rows, models, temperature, max_tokens, journal))
    referenced = add_values(referenced, critic, max_tokens, journal)
    scored = add_score(referenced.hstack(rewards), params.score.kl.beta_in("reward"))
    counts = (pl.col("kind") == "sample") & pl.col("accepted")
    table = scored.with_columns(in_baseline=counts & pl.col("task_reward").is_not_null())
    schema = SCORES | reward_schema(list(params.score.rewards))
    check_token_values(table)
    table = table.select(list(schema))
    check_same_keys(table, rollouts, "scores", "rollouts")
    refuse(referenced, pl.col("ref_logprobs").list.len() != pl.col("length"), "scores", "one log-prob per token")
    check_scores(table)
    write_table(table, schema, KEY, paths.scores(name))
    journal.say(_summary(table.filter(kind="sample")))


def _summary(table: pl.DataFrame) -> str:
    unscorable = table["task_reward"].null_count()
    reward, kl = table.select(pl.col("task_reward").mean(), pl.col("kl").mean()).row(0)
    shown = "none" if reward is None else f"{reward:.3f}"
    return f"task reward {shown}, KL {kl:.3f} nats per sequence, {unscorable} of {table.height} rows not scorable"
