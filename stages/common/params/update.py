"""Section `update`: the objective and the optimizer."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.common.params.base import Count, Positive, Section
from stages.common.params.objective import Cispo, Gspo, ImportanceCorrection, Ppo, Sapo


class Schedule(Section):
    """Linear warm-up over `warmup` optimizer steps; then linear decay that reaches `floor` times the peak at step
    `horizon` and stays there (null: constant).
    """

    warmup: Annotated[int, Field(ge=0)] = 0
    horizon: Count | None = None
    floor: Annotated[float, Field(ge=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _decays_after_warmup(self) -> "Schedule":
        if self.horizon is not None and self.horizon <= max(1, self.warmup):
            raise ValueError(f"horizon ({self.horizon}) has to be later than step 1 and than warmup ({self.warmup})")
        return self


class Update(Section):
    """The objective, its reduction over tokens, AdamW, and how an iteration is split into optimizer steps.

    With `epochs` or `minibatches` above 1 the steps after the first see samples of a policy a step or more old: the
    objectives with a ratio correct for it, `reinforce` does not.
    `constant_length`: the divisor of that reduction (null: `rollout.max_new_tokens`).
    `entropy_bonus`: per nat of the mean entropy of a token.
    """

    objective: Literal["reinforce", "ppo", "gspo", "cispo", "sapo"] = "reinforce"
    ppo: Ppo = Ppo()
    gspo: Gspo = Gspo()
    cispo: Cispo = Cispo()
    sapo: Sapo = Sapo()
    reduction: Literal["sequence_sum", "response_mean", "token_mean", "constant_length"] = "sequence_sum"
    constant_length: Count | None = None
    entropy_bonus: Annotated[float, Field(ge=0)] = 0.0
    importance_correction: ImportanceCorrection | None = None
    learning_rate: Positive
    schedule: Schedule = Schedule()
    betas: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: [0.9, 0.95]
    )
    eps: Positive = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Positive
    epochs: Count = 1
    minibatches: Count = 1
    pack_tokens: Count = 512
