"""Stage `advantage`: scores.parquet -> advantages.parquet."""

import polars as pl

from stages.advantage.groups import decide_loss, describe_groups
from stages.advantage.rloo import rloo
from stages.common import paths
from stages.common.gate import check_advantages, check_same_keys
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.tables import ADVANTAGES, KEY, SCORES, read_table, write_table


def advantage_table(scores: pl.DataFrame, params: Params) -> pl.DataFrame:
    """The advantages of one iteration's scores, checked."""
    described = describe_groups(scores.select(*KEY, "task_reward", "score"), params.advantage.correct_reward)
    table = decide_loss(rloo(described)).select(list(ADVANTAGES))
    check_same_keys(table, scores, "advantages", "scores")
    check_advantages(table)
    return table


def run(name: str, params: Params, journal: Journal) -> None:
    scores = read_table(paths.scores(name), SCORES, KEY)
    table = write_table(advantage_table(scores, params), ADVANTAGES, KEY, paths.advantages(name))
    kinds = table.unique(["iteration", "prompt_id"])["group_kind"].value_counts(sort=True)
    journal.say(", ".join(f"{count} groups {kind}" for kind, count in kinds.rows()))
