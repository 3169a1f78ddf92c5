"""params.yaml as typed sections. An unknown key, or a value the method forbids, is an error before anything runs."""

from typing import Annotated

from pydantic import Field, model_validator

from stages.common.params.adamw import AdamW, Schedule
from stages.common.params.advantage import Advantage, BatchMean, Estimator, Gae, Grpo, MovingAverage, ReinforcePp
from stages.common.params.alarms import Alarms
from stages.common.params.base import ParamsError, Section
from stages.common.params.critic import Critic, Pretraining
from stages.common.params.evaluate import Evaluate
from stages.common.params.judge import Endpoint, Judge
from stages.common.params.objective import Cispo, Gspo, ImportanceCorrection, Ppo, Sapo
from stages.common.params.offline import Dpo, Offline, Simpo
from stages.common.params.prompts import (
    Columns,
    ColumnType,
    ConstraintKind,
    Embedded,
    Gym,
    PromptDataset,
    PromptFile,
    Prompts,
    Shot,
    Verify,
)
from stages.common.params.rlhf import BestOf, Preferences, RewardModel, SampledPairs, Sft
from stages.common.params.rollout import DynamicSampling, Rollout
from stages.common.params.rules import RULES
from stages.common.params.score import Kl, Limits, Reward, Score
from stages.common.params.start import Compute, Lora, Model, Policy, Prepare
from stages.common.params.storage import Resume, Storage
from stages.common.params.update import Update

__all__ = [
    "AdamW",
    "Advantage",
    "Alarms",
    "BatchMean",
    "BestOf",
    "Cispo",
    "ColumnType",
    "Columns",
    "Compute",
    "ConstraintKind",
    "Critic",
    "Dpo",
    "DynamicSampling",
    "Embedded",
    "Endpoint",
    "Estimator",
    "Evaluate",
    "Gae",
    "Grpo",
    "Gspo",
    "Gym",
    "ImportanceCorrection",
    "Judge",
    "Kl",
    "Limits",
    "Lora",
    "Model",
    "MovingAverage",
    "Offline",
    "Params",
    "ParamsError",
    "Policy",
    "Ppo",
    "Preferences",
    "Prepare",
    "Pretraining",
    "PromptDataset",
    "PromptFile",
    "Prompts",
    "ReinforcePp",
    "Resume",
    "Reward",
    "RewardModel",
    "Rollout",
    "SampledPairs",
    "Sapo",
    "Schedule",
    "Score",
    "Section",
    "Sft",
    "Shot",
    "Simpo",
    "Storage",
    "Update",
    "Verify",
]


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Params(Section):
    """All of params.yaml, one section per stage."""

    seed: Annotated[int, Field(ge=0)]
    compute: Compute = Compute()
    prepare: Prepare
    sft: Sft | None = None
    reward_models: dict[Name, RewardModel] = Field(default_factory=dict)
    offline: dict[Name, Offline] = Field(default_factory=dict)
    policy: Policy
    rollout: Rollout
    score: Score
    advantage: Advantage = Advantage()
    update: Update
    critic: Critic | None = None
    evaluate: Evaluate
    judge: Judge | None = None
    alarms: Alarms = Alarms()
    storage: Storage = Storage()
    resume: Resume = Resume()

    @model_validator(mode="after")
    def _go_together(self) -> "Params":
        for rule in RULES:
            rule(self)
        return self
