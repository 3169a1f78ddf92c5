"""Stage `advantage`: scores.parquet -> advantages.parquet."""

import polars as pl

from stages.advantage.batch_mean import batch_mean
from stages.advantage.dr_grpo import dr_grpo
from stages.advantage.groups import decide_loss, describe_groups
from stages.advantage.grpo import grpo
from stages.advantage.max_rl import max_rl
from stages.advantage.opo import opo
from stages.advantage.raft import raft
from stages.advantage.reinforce import reinforce
from stages.advantage.reinforce_pp import reinforce_pp
from stages.advantage.rloo import rloo
from stages.common import paths
from stages.common.gate import check_advantages, check_centred, check_same_keys
from stages.common.journal import Journal
from stages.common.params import Advantage, Params
from stages.common.tables import ADVANTAGES, GROUP, KEY, SCORES, read_table, write_table

CENTRED = frozenset({"rloo", "grpo", "dr_grpo", "max_rl"})  # their advantages sum to 0 in each group


def estimate(scores: pl.DataFrame, options: Advantage) -> pl.DataFrame:
    """Scores with `baseline` and `advantage` by the estimator that the options name."""
    match options.estimator:
        case "rloo":
            return rloo(scores)
        case "reinforce":
            return reinforce(scores)
        case "batch_mean":
            return batch_mean(scores, leave_one_out=options.batch_mean.leave_one_out)
        case "grpo":
            return grpo(scores, std=options.grpo.std)
        case "dr_grpo":
            return dr_grpo(scores)
        case "reinforce_pp":
            return reinforce_pp(scores, baseline=options.reinforce_pp.baseline)
        case "raft":
            return raft(scores)
        case "opo":
            return opo(scores)
        case "max_rl":
            return max_rl(scores)


def advantage_table(scores: pl.DataFrame, params: Params) -> pl.DataFrame:
    """The advantages of one iteration's scores, checked."""
    needed = scores.select(*KEY, "task_reward", "score", length=pl.col("ref_logprobs").list.len())
    described = describe_groups(needed, params.advantage.correct_reward)
    table = decide_loss(estimate(described, params.advantage)).select(list(ADVANTAGES))
    check_same_keys(table, scores, "advantages", "scores")
    check_advantages(table)
    if params.advantage.estimator in CENTRED:
        check_centred(table)
    return table


def run(name: str, params: Params, journal: Journal) -> None:
    scores = read_table(paths.scores(name), SCORES, KEY)
    table = write_table(advantage_table(scores, params), ADVANTAGES, KEY, paths.advantages(name))
    kinds = table.unique(GROUP)["group_kind"].value_counts(sort=True)
    journal.say(", ".join(f"{count} groups {kind}" for kind, count in kinds.rows()))
