"""Pretraining of the value head (VC-PPO, Yuan et al. 2025, arXiv 2503.01491): a critic that knows nothing yet, or a
reward model that never saw half an answer, gives biased advantages in the first iterations.

The initial policy answers training prompts, and the critic learns the discounted score from each token on, lambda 1:

    R_t = gamma^(T - 1 - t) * task reward

At the initial policy the KL to the reference is 0, so that the penalty is 0 wherever `score.kl.placement` has it. (With
a `prepare.reference` it is not; the params refuse that beside pretraining.)
"""

from typing import Any

import polars as pl

from stages.common import paths
from stages.common.critic import Critic, CriticError
from stages.common.journal import Journal
from stages.common.kept.steps import state_of
from stages.common.optimizer import StoredAdamW
from stages.common.params import Critic as Options
from stages.common.params import Params, Pretraining
from stages.common.policy import Models, load_tokenizer
from stages.common.seeds import seed_of
from stages.common.tables import PROMPTS, read_table
from stages.critic.train import train, work_of
from stages.rollout.answers import sampled_answers
from stages.score.model_reward import all_rewards

WHAT = "critic pretraining"  # what these seeds are for


def chosen_prompts(count: int, seed: int) -> pl.DataFrame:
    """`count` training prompts, the first by a hash."""
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(split="train")
    if count > prompts.height:
        raise CriticError(
            f"params.yaml: critic.pretraining.prompts = {count}: a prompt is taken once, and {paths.PROMPTS} has "
            f"{prompts.height} training prompts"
        )
    order = sorted(prompts["prompt_id"], key=lambda prompt_id: (seed_of(seed, WHAT, prompt_id), prompt_id))
    return pl.DataFrame({"prompt_id": order[:count]}).join(prompts, on="prompt_id", maintain_order="left")


def answers(options: Pretraining, params: Params, models: Models, journal: Journal) -> pl.DataFrame:
    """Answers of the initial policy, with the columns of a rollout of iteration 0 and those of the prompts."""
    prompts, policy = chosen_prompts(options.prompts, params.seed), models.policy(paths.policy(paths.INITIAL))
    rows = sampled_answers(policy, load_tokenizer(), prompts, options.samples, (WHAT,), params, journal)
    return rows.with_columns(iteration=pl.lit(0))


def with_returns(rows: pl.DataFrame, rewards: pl.DataFrame, gamma: float) -> pl.DataFrame:
    """Rows that have a task reward, with the discounted reward before each token as `returns`."""
    scored = rows.hstack(rewards.select("task_reward")).filter(pl.col("task_reward").is_not_null())
    if scored.is_empty():
        raise CriticError("critic.pretraining: none of the answers of the initial policy could be scored")
    returns = [
        [reward * gamma ** (length - 1 - t) for t in range(length)]
        for reward, length in scored.select("task_reward", "length").iter_rows()
    ]
    column = pl.Series("returns", returns, dtype=pl.List(pl.Float64))
    return scored.with_columns(column, values=column)  # nothing is clipped here: `values` are not looked at


def pretraining_rows(options: Pretraining, params: Params, models: Models, journal: Journal) -> pl.DataFrame:
    rows = answers(options, params, models, journal)
    score = params.score
    rewards = all_rewards(score.rewards, rows, models, score.pack_tokens, max_failed=score.max_failed)
    found = with_returns(rows, rewards, params.advantage.gae.gamma)
    mean = found.select(pl.col("task_reward").mean()).item()
    journal.say(f"{found.height} of {rows.height} answers scored, mean {mean:.3f}")
    return found


def pretrain(
    critic: Critic, optimizer: StoredAdamW, rows: pl.DataFrame, options: Options, params: Params, journal: Journal
) -> list[dict[str, Any]]:
    """All optimizer steps. One takes as many prompts as a step of an iteration does."""
    assert options.pretraining is not None
    content = {
        "critic": options.model_dump(mode="json"),
        "rollout": params.rollout.prompts_per_iteration,
        "seed": params.seed,
    }
    state = state_of(work_of(critic, rows, content), optimizer)
    per_step = -(-params.rollout.prompts_per_iteration // options.minibatches)
    return train(
        critic,
        optimizer,
        rows,
        epochs=options.pretraining.epochs,
        steps=-(-rows["prompt_id"].n_unique() // per_step),
        clip=None,
        pack_tokens=options.pack_tokens,
        checkpointed=options.gradient_checkpointing,
        iteration=0,
        seed=seed_of(params.seed, WHAT),
        journal=journal,
        state=state,
    )
