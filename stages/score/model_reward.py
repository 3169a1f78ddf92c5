"""Rewards by reward models, and all rewards of a stage's rows together.

A row that a model cannot read, because it is too long for it or empty, is `invalid`: it has no reward. Without a reward
model among the rewards nothing of what models need is imported.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from stages.common import paths
from stages.common.checked import checked
from stages.common.params import Reward
from stages.score.calling.function import of_reward
from stages.score.rewards import NamedBy, Verdict, classify, no_models, reward_columns, reward_inputs

if TYPE_CHECKING:
    from stages.common.policy import Models


def all_rewards(
    rewards: dict[str, Reward],
    rows: pl.DataFrame,
    models: "Models | None",
    max_tokens: int,
    *,
    max_failed: float | None = None,
    named_by: NamedBy = of_reward,
) -> pl.DataFrame:
    """The columns of `reward_columns`, by functions and models, for rows with their prompts' columns.

    `models`: None will do where no reward is a model. `max_tokens`: of one forward pass of a reward model; `max_failed`
    and `named_by` as there.
    """

    def of_model(reward: Reward) -> Sequence[Verdict]:
        if reward.model is None or models is None:
            return no_models(reward)
        return model_verdicts(rows, reward.model, models, max_tokens, normalise=reward.normalise)

    return reward_columns(rewards, reward_inputs(rows), of_model, max_failed=max_failed, named_by=named_by)


def model_verdicts(
    rows: pl.DataFrame, name: str, models: "Models", max_tokens: int, *, normalise: bool = False
) -> list[Verdict]:
    """Reward, status and message of each row by the reward model `name`."""
    from stages.common.model_folder import load_tokenizer
    from stages.common.reward_model import scores, unreadable
    from stages.common.reward_text import sequences_of

    folder = paths.reward_model(name)
    model, tokenizer = models.reward_model(folder)
    mean, std = normalisation(folder) if normalise else (0.0, 1.0)
    sequences = sequences_of(rows, tokenizer, load_tokenizer())
    reasons = [unreadable(model, ids) for ids in sequences]
    readable = [ids for ids, reason in zip(sequences, reasons, strict=True) if reason is None]
    values = iter(scores(model, readable, max_tokens))
    return [
        classify((next(values) - mean) / std) if reason is None else (None, "invalid", reason) for reason in reasons
    ]


def normalisation(folder: Path) -> tuple[float, float]:
    """Mean and standard deviation of the model's scores over answers of the reference."""
    from stages.common.reward_model import NORMALISATION, RewardModelError

    found = json.loads(checked(folder / NORMALISATION).read_text(encoding="utf-8"))
    if not found["std"] > 0:
        raise RewardModelError(
            f"{folder / NORMALISATION}: the scores of the reference's answers are all the same, so they cannot be "
            "brought to standard deviation 1; set `normalise` to false"
        )
    return found["mean"], found["std"]
