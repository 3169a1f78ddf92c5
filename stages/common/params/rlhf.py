"""Sections `sft` and `reward_models`: what RLHF needs before the first iteration."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stages.common.params.adamw import AdamW
from stages.common.params.base import Count, Function, Positive, Section

Share = Annotated[float, Field(gt=0, lt=1)]


class BestOf(Section):
    """Demonstrations by the base model itself: for each of `prompts` training prompts the best of `samples` answers, by
    the function `gold` with its `arguments`, or (null) by the functions of `score.rewards`.
    """

    prompts: Count
    samples: Annotated[int, Field(ge=2)]
    gold: Function | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)


class Sft(AdamW):
    """Supervised fine-tuning of the base into the initial policy, which is the reference too.

    Demonstrations come from a `file` (JSON, CSV or Parquet with `prompt` and `completion`, or `messages`) or are made
    by `best_of`. `sha256` is the file's: with it another file is refused. `method`: all weights, or an adapter by the
    options of `policy.lora` that is merged at the end.
    """

    file: str | None = None
    sha256: str | None = None
    best_of: BestOf | None = None
    heldout: Share = 0.1
    method: Literal["full", "lora"] = "full"
    epochs: Count = 1
    batch_sequences: Count = 16
    pack_tokens: Count = 512

    @model_validator(mode="after")
    def _one_source(self) -> "Sft":
        if (self.file is None) == (self.best_of is None):
            raise ValueError("demonstrations come either from `file` or from `best_of`: set one of the two")
        if self.file is None and self.sha256 is not None:
            raise ValueError("sha256 is of a `file` of demonstrations; remove it")
        return self


class SampledPairs(Section):
    """Two answers of the reference to each of `prompts` training prompts, labelled by a gold function.

    `temperature` of the label: the first answer is preferred with probability sigmoid((g1 - g2) / temperature), and at
    0 the one with the higher score; `noise` is the probability that the label is then swapped. Pairs with equal gold
    scores are left out, whatever the temperature.
    """

    prompts: Count
    gold: Function
    arguments: dict[str, Any] = Field(default_factory=dict)
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    temperature: Annotated[float, Field(ge=0)] = 0.0


class Preferences(Section):
    """Pairs from a `file` (JSON Lines, a JSON array or Parquet, with TRL's columns; docs/preferences.md), or made
    (`sampled`). `sha256`: of the file, with which another is refused; `heldout`: share of the prompts.
    """

    file: str | None = None
    sha256: str | None = None
    sampled: SampledPairs | None = None
    heldout: Share = 0.1

    @model_validator(mode="after")
    def _one_source(self) -> "Preferences":
        if (self.file is None) == (self.sampled is None):
            raise ValueError("preferences come either from `file` or are `sampled`: set one of the two")
        if self.sha256 is not None and self.file is None:
            raise ValueError("sha256 is that of a `file`; pairs that are `sampled` have none")
        return self


class RewardModel(AdamW):
    """A Bradley-Terry reward model over the reference, trained on its own preferences, or one that exists (`source`: a
    folder or hub id of sequence classification with one label). `method`: all weights, or an adapter by the options of
    `policy.lora` and the head, merged at the end.

    `margin`: take the pairs' margins into the loss; `centring`: weight of (r_chosen + r_rejected)^2;
    `reference_samples`: answers of the reference on which its distribution is measured and normalisation is fitted;
    `batch_tokens`: of one forward pass, with padding and both answers of a pair.
    """

    preferences: Preferences | None  # null beside a `source`, but written: DVC watches the option
    source: str | None = None
    method: Literal["full", "lora"] = "full"
    learning_rate: Positive = 1e-5
    epochs: Count = 1
    batch_pairs: Count = 8
    margin: bool = False
    centring: Annotated[float, Field(ge=0)] = 0.0
    reference_samples: Count = 128
    batch_tokens: Count = 1024

    @model_validator(mode="after")
    def _trained_or_given(self) -> "RewardModel":
        if (self.preferences is None) == (self.source is None):
            raise ValueError("a reward model is trained on `preferences` or taken from `source`: set one of the two")
        return self
