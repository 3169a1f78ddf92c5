"""One optimizer step: gradients of all its micro-batches, clipped, applied; and the numbers that describe it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import torch

from stages.common.kept.steps import KeptSteps
from stages.common.optimizer import StoredAdamW
from stages.common.packing import PackedRow
from stages.update.loss import micro_batch_loss, scalar
from stages.update.meter import Meter
from stages.update.recipe import Recipe
from stages.update.reduction import Totals
from stages.update.rows import step_rows


def optimizer_step(
    model: Any,
    optimizer: StoredAdamW,
    rows: pl.DataFrame,
    micro_batches: list[PackedRow],
    recipe: Recipe,
    progress: Callable[[], None],
    kept: KeptSteps | None = None,
    save_to: Path | None = None,
) -> dict[str, Any]:
    """Take the step and return its row of the steps table.

    `rows` are the step's rows in the loss, with an `index` that is their place. Without any micro-batch nothing has a
    gradient: weights and optimizer state stay as they are, as they do where all gradients turn out to be zero.
    A step that `kept` has begun goes on after the micro-batches whose gradients the optimizer holds already.
    `save_to`: a step that is taken leaves the optimizer's state there.
    """
    kept = kept or KeptSteps()
    batch, meter = step_rows(rows), Meter()
    totals = Totals(rows.height, int(rows["completion_ids"].list.len().sum()), recipe.constant_length)
    sums = dict.fromkeys(("loss", "kl_loss"), 0.0)
    begun = kept.inside
    if begun.done:
        sums = begun.numbers["sums"]
        meter.restore(begun.numbers["meter"])
    for done, packed in enumerate(micro_batches[begun.done :], start=begun.done + 1):
        parts = micro_batch_loss(model, packed, batch, recipe, totals, meter)
        torch.autograd.backward(parts.total)
        optimizer.collect_gradients()
        sums["loss"] += scalar(parts.total)
        sums["kl_loss"] += scalar(parts.kl)
        progress()
        if done < len(micro_batches) and kept.due():
            kept.within(done, {"sums": sums, "meter": meter.state()})
    norm, rate = optimizer.step(save_to) if micro_batches else (0.0, None)
    return {
        "optimizer_step": optimizer.step_count,
        "rows_in_loss": rows.height,
        "rows_with_gradient": len({row for packed in micro_batches for row in packed.row_T}),
        "tokens": meter.tokens,
        **sums,
        "grad_norm": norm,
        "learning_rate": rate,
        **meter.columns(),
    }
