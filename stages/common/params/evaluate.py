"""Section `evaluate`: held-out evaluation."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from stages.common.params.base import Count, Function, Section
from stages.common.params.score import Reward, names_of_columns


class Evaluate(Section):
    """Held-out evaluation. `rewards` are measured beside those of `score.rewards` and are no part of the task reward: a
    gold reward, say, beside the model that stands for it. `parts` names a function that tells what a reward is made
    of. `kl`: measure the KL to the reference; auto: where `score.kl.beta` is above 0, and a reference there anyway.
    """

    temperature: Annotated[float, Field(ge=0)]
    samples_per_prompt: Count = 1
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    resamples: Count = 2000
    rewards: dict[str, Reward] = Field(default_factory=dict)
    parts: Function | None = None
    kl: Literal["auto"] | bool = "auto"

    @field_validator("rewards")
    @classmethod
    def _names(cls, rewards: dict[str, Reward]) -> dict[str, Reward]:
        return names_of_columns(rewards)

    def measures_kl(self, beta: float) -> bool:
        """Whether the KL is measured at this weight of its penalty."""
        return beta > 0 if self.kl == "auto" else self.kl
