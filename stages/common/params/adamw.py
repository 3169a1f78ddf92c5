"""AdamW and its learning rate, the same options wherever something is trained."""

from typing import Annotated

from pydantic import Field, model_validator

from stages.common.params.base import Count, Positive, Section


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


class AdamW(Section):
    """Gradients are clipped to `max_grad_norm`; weights below float32 have float32 masters."""

    learning_rate: Positive
    schedule: Schedule = Schedule()
    betas: Annotated[list[Annotated[float, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: [0.9, 0.95]
    )
    eps: Positive = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Positive = 1.0
