"""Section `rollout`: what is sampled."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from stages.common.params.base import Count, Positive, Section


class DynamicSampling(Section):
    """Sample further prompts, up to `max_prompts` in all, until `prompts_per_iteration` groups have different rewards.

    `reward`: whose values have to differ, by its name in `score.rewards` (null: the task reward).
    """

    max_prompts: Count
    reward: str | None = None


class Rollout(Section):
    """What is sampled: K = `samples_per_prompt` completions for each prompt of an iteration.

    `greedy` adds the greedy completion of each prompt, which the estimator `remax` compares with. `batch_tokens`:
    places in the key-value cache, a prompt's tokens and `max_new_tokens` for each sequence that is alive. `processes`:
    on a CPU, with one thread each (`auto`: one per core). `dtype`: of the weights that sample (null: `compute.dtype`).
    """

    prompts_per_iteration: Count
    samples_per_prompt: Count
    max_new_tokens: Count
    temperature: Positive
    top_p: float = 1.0
    top_k: int = 0
    stop_tokens: Annotated[list[str], Field(min_length=1)] | None = None
    batch_tokens: Count = 8192
    processes: Literal["auto"] | Count = 1
    dtype: Literal["bfloat16"] | None = None
    greedy: bool = False
    dynamic_sampling: DynamicSampling | None = None

    @field_validator("top_p")
    @classmethod
    def _whole_distribution(cls, value: float) -> float:
        if value != 1.0:
            raise ValueError("must be 1: the update's log-probs are those of the whole distribution, not of a nucleus")
        return value

    @field_validator("top_k")
    @classmethod
    def _no_truncation(cls, value: int) -> int:
        if value != 0:
            raise ValueError("must be 0 (off): the update's log-probs are those of the whole distribution")
        return value

    @model_validator(mode="after")
    def _budget_is_enough(self) -> "Rollout":
        if self.dynamic_sampling and self.dynamic_sampling.max_prompts < self.prompts_per_iteration:
            raise ValueError(
                f"dynamic_sampling.max_prompts ({self.dynamic_sampling.max_prompts}) is the budget of all prompts "
                f"sampled in an iteration; it cannot be less than prompts_per_iteration ({self.prompts_per_iteration})"
            )
        return self
