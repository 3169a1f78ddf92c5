"""Training of the critic on rows with returns: optimizer steps over whole groups, in a seeded order for each epoch."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from stages.common.checkpointing import gradient_checkpointing
from stages.common.critic import Critic
from stages.common.journal import Journal
from stages.common.kept.key import frame_hash
from stages.common.kept.parts import Work
from stages.common.kept.steps import State, resumed
from stages.common.optimizer import StoredAdamW
from stages.common.seeds import seed_of
from stages.critic.step import critic_step, micro_batches
from stages.critic.values import reads_one_by_one

UNIT = "steps of the critic"


def batches_of(rows: pl.DataFrame, epochs: int, steps: int, seed: int) -> Iterator[tuple[int, pl.DataFrame]]:
    """(epoch, rows) of each optimizer step; an epoch takes `steps` of them, over disjoint groups."""
    for epoch in range(1, epochs + 1):
        order = sorted(rows["prompt_id"].unique(), key=lambda prompt_id: (seed_of(seed, epoch, prompt_id), prompt_id))
        for number in range(steps):
            mine = order[number * len(order) // steps : (number + 1) * len(order) // steps]
            yield epoch, rows.filter(pl.col("prompt_id").is_in(mine))


def train(
    critic: Critic,
    optimizer: StoredAdamW,
    rows: pl.DataFrame,
    *,
    epochs: int,
    steps: int,
    clip: float | None,
    pack_tokens: int,
    checkpointed: bool,
    iteration: int,
    seed: int,
    journal: Journal,
    state: State | None = None,
    save_to: Path | None = None,
) -> list[dict[str, Any]]:
    """All optimizer steps, one row of the steps table each. A row without returns is left out of everything. Steps
    that `state` holds are not taken again.

    `rows` have `prompt_id`, `prompt_ids`, `completion_ids`, `returns`, and `values`, from which `clip` counts.
    `save_to`: where the last step leaves the optimizer's state, if it is taken.
    """
    one_by_one, total = reads_one_by_one(critic.model, journal), epochs * steps
    kept = resumed(state, total, UNIT)
    for number, (epoch, batch) in enumerate(batches_of(rows, epochs, steps, seed), start=1):
        if number <= len(kept.rows):
            continue
        known = batch.filter(pl.col("returns").is_not_null()).with_row_index("index")
        packed = micro_batches(known, pack_tokens, one_by_one=one_by_one)
        with gradient_checkpointing(critic.model, checkpointed, "critic.gradient_checkpointing"):
            last = save_to if number == total else None
            row = critic_step(critic.model, optimizer, known, packed, clip, kept, last)
        if not row["grad_norm"]:
            journal.say(f"critic, step {number}: nothing has a gradient; its weights stay as they are")
        kept.taken({"iteration": iteration, "step": number, "epoch": epoch, **row}, last=number == total)
        journal.progress(number, total, UNIT)
    return kept.rows


def work_of(critic: Critic, rows: pl.DataFrame, content: Mapping[str, Any]) -> Work:
    """What the steps depend on, beside the critic that they start from and what `content` says."""
    used = rows.select("prompt_id", "prompt_ids", "completion_ids", "returns", "values")
    return Work("critic-steps", UNIT, ("critic",), critic.model, {"rows": frame_hash(used), **content})
