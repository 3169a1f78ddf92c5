"""One optimizer step of the critic: gradients of all its micro-batches under one denominator, and what describes it.

Dimension suffix: T completion tokens of a micro-batch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from stages.common.kept.steps import KeptSteps
from stages.common.optimizer import StoredAdamW
from stages.common.packing import PackedRow, groups_of, pack
from stages.critic.loss import value_losses
from stages.critic.values import row_values

NEGLIGIBLE = 1e-6  # a spread of returns that is rounding, beside 1 or the largest of them


def micro_batches(rows: pl.DataFrame, max_tokens: int, *, one_by_one: bool) -> list[PackedRow]:
    """Packed rows, the longest first."""
    return pack(groups_of(rows), max_tokens, one_by_one=one_by_one)


def critic_step(
    model: Any,
    optimizer: StoredAdamW,
    rows: pl.DataFrame,
    packed_rows: Sequence[PackedRow],
    clip: float | None,
    kept: KeptSteps | None = None,
    save_to: Path | None = None,
) -> dict[str, Any]:
    """Take the step on rows with `returns` (and, for the clip, `values`) and return its row of the steps table.

    `rows` have an `index` that is their place. Without any, weights and optimizer state stay as they are. A step that
    `kept` has begun goes on after the micro-batches whose gradients the optimizer holds already. `save_to`: a step that
    is taken leaves the optimizer's state there.
    """
    kept = kept or KeptSteps()
    returns, old = rows["returns"].to_list(), rows["values"].to_list()
    total = int(rows["completion_ids"].list.len().sum())
    begun = kept.inside
    loss, clipped = begun.numbers.get("loss", 0.0), begun.numbers.get("clipped", 0)
    seen = [(begun.tensors["value"], begun.tensors["return"])] if begun.done else []
    for done, packed in enumerate(packed_rows[begun.done :], start=begun.done + 1):
        value_T = row_values(model, packed)
        return_T, old_T = _column(returns, packed, value_T), _column(old, packed, value_T)
        loss_T, clipped_T = value_losses(value_T, return_T, old_T, clip)
        torch.autograd.backward(loss_T.sum() / total)
        optimizer.collect_gradients()
        loss += float(loss_T.detach().double().sum()) / total
        clipped += int(clipped_T.sum())
        seen.append((value_T.detach().cpu(), return_T.cpu()))
        if done < len(packed_rows) and kept.due():
            values, goals = (torch.cat(parts) for parts in zip(*seen, strict=True))
            kept.within(done, {"loss": loss, "clipped": clipped}, {"value": values, "return": goals})
    norm, rate = optimizer.step(save_to) if packed_rows else (0.0, None)
    return {
        "optimizer_step": optimizer.step_count,
        "rows": rows.height,
        "tokens": total,
        "value_loss": loss if packed_rows else None,
        "value_clip": clipped / total if packed_rows and clip is not None else None,
        **described(seen),
        "grad_norm": norm,
        "learning_rate": rate,
    }


def _column(values: Sequence[Sequence[float]], packed: PackedRow, like_T: Tensor) -> Tensor:
    """The values [T] of the micro-batch's tokens. The tokens of a row lie together, in order."""
    flat = [x for row in dict.fromkeys(packed.row_T) for x in values[row]]
    return torch.tensor(flat, dtype=like_T.dtype, device=like_T.device)


def described(seen: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float | None]:
    """Means of values and returns before the step, and the share of the returns' variance that the values explain."""
    if not seen:
        return dict.fromkeys(("value_mean", "return_mean", "explained_variance"))
    values, returns = (torch.cat(parts).double().cpu().numpy() for parts in zip(*seen, strict=True))
    differ = float(np.std(returns)) > NEGLIGIBLE * max(1.0, float(np.abs(returns).max()))
    explained = 1.0 - float(np.var(returns - values) / np.var(returns)) if differ else None
    return {"value_mean": float(values.mean()), "return_mean": float(returns.mean()), "explained_variance": explained}
