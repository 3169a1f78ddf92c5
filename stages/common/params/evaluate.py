"""Section `evaluate`: held-out evaluation."""

from typing import Annotated

from pydantic import Field

from stages.common.params.base import Count, Section


class Evaluate(Section):
    """Held-out evaluation; `parts` names a function that tells what each reward is made of."""

    temperature: Annotated[float, Field(ge=0)]
    samples_per_prompt: Count = 1
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    resamples: Count = 2000
    parts: Annotated[str, Field(pattern=r"^[\w.]+:\w+$")] | None = None
