"""The estimator that params.yaml names, applied to the scores of one iteration."""

import polars as pl

from stages.advantage.batch_mean import batch_mean
from stages.advantage.dr_grpo import dr_grpo
from stages.advantage.gae import gae
from stages.advantage.grpo import grpo
from stages.advantage.max_rl import max_rl
from stages.advantage.moving_average import Carried, baseline_of, moving_average
from stages.advantage.opo import opo
from stages.advantage.raft import raft
from stages.advantage.reinforce import reinforce
from stages.advantage.reinforce_pp import reinforce_pp
from stages.advantage.remax import remax
from stages.advantage.rloo import rloo
from stages.common.params import Advantage

CENTRED = frozenset({"rloo", "grpo", "dr_grpo", "max_rl"})  # their advantages sum to 0 in each group


def estimate(
    samples: pl.DataFrame, greedy: pl.DataFrame, carried: Carried, options: Advantage, token_beta: float = 0.0
) -> pl.DataFrame:
    """Samples with `baseline` and `advantage`; by gae with `token_advantages` and `returns`, too.

    `greedy` (for remax) and `carried` (for moving_average) may be empty. `token_beta`: weight of the KL as a penalty on
    each token, which gae takes into the rewards.
    """
    match options.estimator:
        case "rloo":
            return rloo(samples)
        case "reinforce":
            return reinforce(samples)
        case "moving_average":
            return moving_average(samples, baseline_of(carried, options.moving_average))
        case "batch_mean":
            return batch_mean(samples, leave_one_out=options.batch_mean.leave_one_out)
        case "remax":
            return remax(samples, greedy)
        case "grpo":
            return grpo(samples, std=options.grpo.std)
        case "dr_grpo":
            return dr_grpo(samples)
        case "reinforce_pp":
            return reinforce_pp(samples, baseline=options.reinforce_pp.baseline)
        case "raft":
            return raft(samples)
        case "opo":
            return opo(samples)
        case "max_rl":
            return max_rl(samples)
        case "gae":
            return gae(samples, options.gae, token_beta)
