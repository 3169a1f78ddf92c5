"""params.yaml as typed sections. An unknown key, or a value the method forbids, is an error before anything runs."""

from typing import Annotated

from pydantic import Field, model_validator

from stages.common.params.advantage import Advantage, BatchMean, Estimator, Grpo, MovingAverage, ReinforcePp
from stages.common.params.base import ParamsError, Section
from stages.common.params.evaluate import Evaluate
from stages.common.params.objective import Cispo, Gspo, ImportanceCorrection, Ppo, Sapo
from stages.common.params.rollout import DynamicSampling, Rollout
from stages.common.params.score import Kl, Reward, Score
from stages.common.params.start import Compute, ConstraintKind, Lora, Model, Policy, Prepare, Prompts
from stages.common.params.update import Schedule, Update

__all__ = [
    "Advantage",
    "BatchMean",
    "Cispo",
    "Compute",
    "ConstraintKind",
    "DynamicSampling",
    "Estimator",
    "Evaluate",
    "Grpo",
    "Gspo",
    "ImportanceCorrection",
    "Kl",
    "Lora",
    "Model",
    "MovingAverage",
    "Params",
    "ParamsError",
    "Policy",
    "Ppo",
    "Prepare",
    "Prompts",
    "ReinforcePp",
    "Reward",
    "Rollout",
    "Sapo",
    "Schedule",
    "Score",
    "Section",
    "Update",
]


class Params(Section):
    """All of params.yaml, one section per stage."""

    seed: Annotated[int, Field(ge=0)]
    compute: Compute = Compute()
    prepare: Prepare
    policy: Policy
    rollout: Rollout
    score: Score
    advantage: Advantage = Advantage()
    update: Update
    evaluate: Evaluate

    @model_validator(mode="after")
    def _remax_has_greedy_rows(self) -> "Params":
        if self.advantage.estimator == "remax" and not self.rollout.greedy:
            raise ValueError("advantage.estimator remax compares with greedy completions: set rollout.greedy to true")
        return self

    @model_validator(mode="after")
    def _signal_is_a_reward(self) -> "Params":
        dynamic = self.rollout.dynamic_sampling
        if dynamic and dynamic.reward is not None and dynamic.reward not in self.score.rewards:
            raise ValueError(
                f"rollout.dynamic_sampling.reward = {dynamic.reward!r} is none of score.rewards: "
                f"{', '.join(self.score.rewards)}"
            )
        return self

    @model_validator(mode="after")
    def _minibatches_have_prompts(self) -> "Params":
        if self.update.minibatches > self.rollout.prompts_per_iteration:
            raise ValueError(
                f"update.minibatches ({self.update.minibatches}) are made of whole groups: there cannot be more than "
                f"rollout.prompts_per_iteration ({self.rollout.prompts_per_iteration})"
            )
        return self

    @model_validator(mode="after")
    def _token_advantages_have_token_ratios(self) -> "Params":
        by_sequence = self.update.objective == "gspo" or (
            self.update.objective == "ppo" and self.update.ppo.ratio == "sequence"
        )
        if by_sequence and self.score.kl.placement == "reward_to_go":
            raise ValueError(
                "score.kl.placement reward_to_go gives each token an advantage of its own, but the objective has one "
                "term per sequence: choose placement reward or loss, or an objective with token ratios"
            )
        return self
