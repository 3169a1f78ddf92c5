"""What an update trains on: rollouts and advantages by key, of the samples that dynamic sampling accepted."""

import polars as pl

from stages.common import paths
from stages.common.gate import check_same_keys, check_training_rows
from stages.common.tables import ADVANTAGES, KEY, PROMPTS, ROLLOUTS, read_table


def training_rows(name: str, *, needs_reference: bool) -> pl.DataFrame:
    """Rollouts, advantages and prompt ids of the iteration, joined and checked; greedy rows are left out.

    `needs_reference`: the KL is in the loss, so that each row needs the reference's log-probs.
    """
    rollouts = read_table(paths.rollouts(name), ROLLOUTS, KEY)
    advantages = read_table(paths.advantages(name), ADVANTAGES, KEY)
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).select("prompt_id", "prompt_ids")
    check_same_keys(rollouts, advantages, "rollouts", "advantages")
    rows = rollouts.join(advantages, on=KEY, validate="1:1", maintain_order="left")
    rows = rows.join(prompts, on="prompt_id", validate="m:1", maintain_order="left")
    rows = rows.filter((pl.col("kind") == "sample") & pl.col("accepted"))
    check_training_rows(rows, needs_reference=needs_reference)
    return rows
