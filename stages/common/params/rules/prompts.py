"""Options that ask for prompts: there have to be as many, and something to verify them with."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.common.params import Params


def verified_by_a_function(params: "Params") -> None:
    verify = params.prepare.prompts.verify
    if verify is None:
        return
    reward = params.score.rewards.get(verify.reward)
    if reward is None or reward.function is None:
        known = ", ".join(name for name, one in params.score.rewards.items() if one.function is not None) or "none"
        raise ValueError(f"prepare.prompts.verify.reward = {verify.reward!r}: functions of score.rewards are {known}")


def budget_within_the_prompts(params: "Params") -> None:
    dynamic = params.rollout.dynamic_sampling
    there = params.prepare.prompts.declared_train
    if dynamic and there is not None and dynamic.max_prompts > there:
        raise ValueError(
            f"rollout.dynamic_sampling.max_prompts = {dynamic.max_prompts}: an iteration samples a prompt once, "
            f"and there are {there} (prepare.prompts)"
        )


def best_of_within_the_prompts(params: "Params") -> None:
    best_of = params.sft.best_of if params.sft else None
    there = params.prepare.prompts.declared_train
    if best_of and there is not None and best_of.prompts > there:
        raise ValueError(
            f"sft.best_of.prompts = {best_of.prompts}: a prompt is answered once, and there are {there} "
            "(prepare.prompts)"
        )
    if best_of and best_of.gold is None and all(reward.function is None for reward in params.score.rewards.values()):
        raise ValueError("sft.best_of picks answers by the functions of score.rewards, and there is none: set `gold`")


RULES = (
    verified_by_a_function,
    budget_within_the_prompts,
    best_of_within_the_prompts,
)
