"""Section `offline`: policies that are trained on preference pairs alone, to be compared with."""

from typing import Annotated, Literal

from pydantic import Field

from stages.common.params.adamw import AdamW
from stages.common.params.base import Count, Positive, Section


class Dpo(Section):
    """Options of `dpo`: `beta` per nat of the ratio to the reference; `label_smoothing`: the probability that a label
    is wrong (cDPO), 0 for plain DPO.
    """

    beta: Positive = 0.1
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0


class Simpo(Section):
    """Options of `simpo`: `beta` per nat of the mean log-prob of a token, and the `margin` gamma between the two."""

    beta: Positive = 2.0
    margin: Annotated[float, Field(ge=0)] = 1.0


class Offline(AdamW):
    """A policy trained from `i0000` on the pairs of one of `reward_models` (`pairs`), evaluated and judged like an
    iteration. `method` and adapter are those of the section `policy`.
    """

    objective: Literal["dpo", "simpo"]
    pairs: str
    dpo: Dpo = Dpo()
    simpo: Simpo = Simpo()
    epochs: Count = 1
    batch_pairs: Count = 8
    pack_tokens: Count = 512
