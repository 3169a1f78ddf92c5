"""Options of the objectives of the update, one file each in `stages/update/`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stages.common.params.base import Positive, Section


class Ppo(Section):
    """Options of `ppo`: ratio of each token or of the whole sequence, clipped to [1 - clip_low, 1 + clip_high];
    `dual_clip` bounds the ratio of negative advantages too (null: it does not).
    """

    ratio: Literal["token", "sequence"] = "token"
    clip_low: Annotated[float, Field(gt=0, le=1)] = 0.2
    clip_high: Positive = 0.2
    dual_clip: Positive | None = None

    @model_validator(mode="after")
    def _dual_above_clip(self) -> "Ppo":
        if self.dual_clip is not None and self.dual_clip <= 1 + self.clip_high:
            raise ValueError(f"dual_clip ({self.dual_clip}) has to be above 1 + clip_high ({1 + self.clip_high})")
        return self


class Gspo(Section):
    """Options of `gspo`: the length-normalised sequence ratio is clipped to [1 - clip_low, 1 + clip_high]."""

    clip_low: Annotated[float, Field(gt=0, le=1)] = 3e-4
    clip_high: Positive = 4e-4


class Cispo(Section):
    """Options of `cispo`: the detached ratio is clipped to [1 - clip_low, 1 + clip_high] (null: not from below)."""

    clip_low: Annotated[float, Field(gt=0, le=1)] | None = None
    clip_high: Positive = 4.0


class Sapo(Section):
    """Options of `sapo`: how fast the gate closes, for positive and for negative advantages."""

    temperature_positive: Positive = 1.0
    temperature_negative: Positive = 1.05


class ImportanceCorrection(Section):
    """Weights by trainer over sampler probability, for a sampler that differs from the trainer.

    `truncate` holds the ratio in [floor, cap]; `mask` sets those outside of it to 0. `level`: each token's own ratio,
    or the product over the sequence.
    """

    form: Literal["truncate", "mask"]
    level: Literal["token", "sequence"] = "token"
    cap: Positive = 2.0
    floor: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _cap_above_floor(self) -> "ImportanceCorrection":
        if self.cap <= self.floor:
            raise ValueError(f"cap ({self.cap}) has to be above floor ({self.floor})")
        return self
