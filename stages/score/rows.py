"""The rows that are scored: rollouts with their prompts' columns, and the rewards of all of them."""

from typing import TYPE_CHECKING

import polars as pl

from stages.common import paths
from stages.common.errors import StageError
from stages.common.gate import refuse
from stages.common.params import Reward, Score
from stages.common.tables import KEY, PROMPTS, ROLLOUTS, read_table
from stages.score.model_reward import all_rewards

if TYPE_CHECKING:
    from stages.common.policy import Models


def rollout_rows(name: str) -> pl.DataFrame:
    """The rollouts of an iteration with their prompts' columns, which reward functions receive by name."""
    rollouts = read_table(paths.rollouts(name), ROLLOUTS, KEY)
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",))
    shared = sorted(set(rollouts.columns) & set(prompts.columns) - {"prompt_id"})
    if shared:
        raise StageError(f"{paths.PROMPTS}: columns {shared} have names that rollouts use; rename them in the dataset")
    rows = rollouts.join(prompts, on="prompt_id", how="left", maintain_order="left")
    refuse(rows, pl.col("prompt_ids").is_null(), str(paths.rollouts(name)), f"its prompt is in {paths.PROMPTS}")
    return rows


def score_rows(rewards: dict[str, Reward], rows: pl.DataFrame, models: "Models | None", score: Score) -> pl.DataFrame:
    """The rewards of all rows, in their order. Greedy rows are scored in a call of their own: what a function makes of
    the samples must not depend on whether there are any.
    """
    numbered = rows.with_row_index("_row")
    kinds = [part for kind in ("sample", "greedy") if (part := numbered.filter(kind=kind)).height]
    scored = [
        all_rewards(rewards, part.drop("_row"), models, score.pack_tokens, max_failed=score.max_failed).with_columns(
            part["_row"]
        )
        for part in kinds
    ]
    return pl.concat(scored).sort("_row").drop("_row")
