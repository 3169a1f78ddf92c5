"""Options that name a reward or a reward model."""

from typing import TYPE_CHECKING

from stages.common.paths import is_iteration

if TYPE_CHECKING:
    from stages.common.params import Params


def named_rewards_exist(params: "Params") -> None:
    dynamic = params.rollout.dynamic_sampling
    named = {"advantage.outcome_reward": params.advantage.outcome_reward}
    named |= {"rollout.dynamic_sampling.reward": dynamic.reward} if dynamic else {}
    for option, reward in named.items():
        if reward is not None and reward not in params.score.rewards:
            raise ValueError(f"{option} = {reward!r} is none of score.rewards: {', '.join(params.score.rewards)}")


def reward_models_exist(params: "Params") -> None:
    known = ", ".join(params.reward_models) or "none"
    if params.judge and params.judge.model is not None and params.judge.model not in params.reward_models:
        raise ValueError(f"judge.model = {params.judge.model!r} is none of reward_models: {known}")
    for option, rewards in (("score.rewards", params.score.rewards), ("evaluate.rewards", params.evaluate.rewards)):
        for name, reward in rewards.items():
            if reward.model is not None and reward.model not in params.reward_models:
                raise ValueError(f"{option}.{name}.model = {reward.model!r} is none of reward_models: {known}")


def measured_rewards_have_names_of_their_own(params: "Params") -> None:
    twice = sorted(set(params.score.rewards) & set(params.evaluate.rewards))
    if twice:
        raise ValueError(f"evaluate.rewards: {', '.join(twice)} are in score.rewards, too; they are measured anyway")


def offline_has_names_and_pairs(params: "Params") -> None:
    trained = [name for name, model in params.reward_models.items() if model.preferences is not None]
    for name, offline in params.offline.items():
        if is_iteration(name):
            raise ValueError(f"offline.{name}: names like that are those of iterations; choose another")
        if offline.pairs not in trained:
            known = ", ".join(trained) or "none"
            raise ValueError(
                f"offline.{name}.pairs = {offline.pairs!r}: pairs are those of a reward model with preferences: {known}"
            )


RULES = (
    named_rewards_exist,
    reward_models_exist,
    measured_rewards_have_names_of_their_own,
    offline_has_names_and_pairs,
)
