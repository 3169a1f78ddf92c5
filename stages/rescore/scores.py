"""The scores table of existing rollouts under other rewards.

New are the rewards, `task_reward`, `score` and `in_baseline`. What depends on the policy, the reference and the critic
alone is taken from the old table: log-probs, KL, entropy, values. No policy and no reference is loaded.
"""

import polars as pl

from stages.common import paths
from stages.common.gate import check_same_keys, check_scores, refuse
from stages.common.params import Params
from stages.common.tables import KEY, SCORES, read_table, reward_schema
from stages.score.kl import add_kl, add_score

NEW = ("task_reward", "score", "in_baseline")
KEPT = tuple(column for column in SCORES if column not in (*KEY, *NEW))


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


def scores_table(rows: pl.DataFrame, old: pl.DataFrame, rewards: pl.DataFrame, params: Params) -> pl.DataFrame:
    """Columns of `SCORES` and of the rewards (`rewards`: one row per row of `rows`), checked."""
    keyed = rows.select(KEY).hstack(rewards)
    table = keyed.join(old.select(*KEY, *KEPT), on=KEY, validate="1:1", maintain_order="left")
    counts = (pl.col("kind") == "sample") & pl.col("accepted")
    table = add_score(table, params.score.kl.beta_in("reward")).with_columns(
        in_baseline=counts & pl.col("task_reward").is_not_null()
    )
    names = [column.removeprefix("reward/") for column in rewards.columns if column.startswith("reward/")]
    table = table.select(list(SCORES | reward_schema(names)))
    check_scores(table)
    return table
