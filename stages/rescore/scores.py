"""The scores table of existing rollouts under other rewards.

New are the rewards, `task_reward`, `score` and `in_baseline`. What depends on the policy, the reference and the critic
alone is taken from the old table: log-probs, KL, entropy, values. No policy and no reference is loaded.
"""

import polars as pl

from stages.common import paths
from stages.common.errors import StageError
from stages.common.gate import check_same_keys, check_scores, refuse
from stages.common.params import Params, Reward
from stages.common.policy import Models
from stages.common.tables import KEY, PROMPTS, ROLLOUTS, SCORES, read_table, reward_schema
from stages.rescore.rewards_file import Rewards
from stages.score.kl import add_kl, add_score
from stages.score.model_reward import all_rewards

NEW = ("task_reward", "score", "in_baseline")
KEPT = tuple(column for column in SCORES if column not in (*KEY, *NEW))
FAILED = ("invalid", "timeout", "error")


def rollout_rows(name: str) -> pl.DataFrame:
    """The rollouts of an iteration with their prompts' columns, which reward functions receive by name."""
    rollouts = read_table(paths.rollouts(name), ROLLOUTS, KEY)
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",))
    shared = sorted(set(rollouts.columns) & set(prompts.columns) - {"prompt_id"})
    if shared:
        raise StageError(f"{paths.PROMPTS}: columns {shared} have names that rollouts use; rename them in the dataset")
    rows = rollouts.join(prompts, on="prompt_id", how="left", maintain_order="left")
    refuse(rows, pl.col("prompt_ids").is_null(), str(paths.rollouts(name)), f"its prompt is in {paths.PROMPTS}")
    return rows


def read_old(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """The old scores of these rows, refused if they were made of others: of other keys or other log-probs."""
    path = paths.scores(name)
    old = read_table(path, SCORES, KEY)
    check_same_keys(old, rows, str(path), str(paths.rollouts(name)))
    now = rows.select(*KEY, "sampler_logprobs", length_now="length", accepted_now="accepted")
    own = now.join(old.select(*KEY, *KEPT), on=KEY, validate="1:1", maintain_order="left")
    sums = add_kl(own.select(*KEY, "sampler_logprobs", "ref_logprobs"))["logp_sum"]
    known = pl.col("logp_sum").is_not_null() & (pl.col("logp_sum") != sums)
    length = (pl.col("ref_logprobs").list.len() != pl.col("length_now")).fill_null(value=False)
    accepted = pl.col("accepted") != pl.col("accepted_now")
    rule = f"made of {paths.rollouts(name)} as it is now (`dvc repro score@{name}` makes it again)"
    refuse(own, known | length | accepted, str(path), rule)
    return old


def rewarded(rewards: dict[str, Reward], rows: pl.DataFrame, models: Models, params: Params) -> pl.DataFrame:
    """The reward columns, in the rows' order. Greedy rows are scored in a call of their own, as the score stage does:
    what a function makes of the samples must not depend on whether there are any.
    """
    numbered = rows.with_row_index("_row")
    kinds = [part for kind in ("sample", "greedy") if (part := numbered.filter(kind=kind)).height]
    scored = [
        all_rewards(rewards, part.drop("_row"), models, params.score.pack_tokens).with_columns(part["_row"])
        for part in kinds
    ]
    return pl.concat(scored).sort("_row").drop("_row")


def refuse_failures(table: pl.DataFrame, given: Rewards, max_failed: float) -> None:
    """Stop where a reward failed to score more than the share `max_failed` of the rows; the first of them is named."""
    for name in given.rewards:
        failed = table.filter(pl.col(f"status/{name}").is_in(FAILED))
        if failed.height > max_failed * table.height:
            first = failed.row(0, named=True)
            raise StageError(
                f"{given.place(name)} failed on {failed.height} of {table.height} rows, more than score.max_failed = "
                f"{max_failed:g} in params.yaml allows. First: {first['prompt_id']} {first['kind']} {first['sample']}: "
                f"{first[f'status/{name}']}: {first[f'message/{name}']}"
            )


def scores_table(rows: pl.DataFrame, old: pl.DataFrame, rewards: pl.DataFrame, params: Params) -> pl.DataFrame:
    """Columns of `SCORES` and of the rewards (`rewards`: one row per row of `rows`), checked."""
    keyed = rows.select(KEY).hstack(rewards)
    table = keyed.join(old.select(*KEY, *KEPT), on=KEY, validate="1:1", maintain_order="left")
    counts = (pl.col("kind") == "sample") & pl.col("accepted")
    table = with_score(table, params.score.kl.beta_in("reward")).with_columns(
        in_baseline=counts & pl.col("task_reward").is_not_null()
    )
    names = [column.removeprefix("reward/") for column in rewards.columns if column.startswith("reward/")]
    table = table.select(list(SCORES | reward_schema(names)))
    check_scores(table.with_columns(pl.col("kl").fill_null(0.0)))  # without a reference there is no KL to be finite
    return table


def with_score(table: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Add `score`. Without a penalty a KL that was never measured takes nothing off."""
    if beta:
        refuse(table, pl.col("kl").is_null(), "scores", "a row has the KL that it is penalised for")
    plain = pl.when(pl.col("kl").is_null()).then(pl.col("task_reward")).otherwise(pl.col("score"))
    return add_score(table, beta).with_columns(score=plain)
