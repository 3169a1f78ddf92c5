"""One optimizer step: gradients of all its micro-batches, clipped, applied; and the numbers that describe it.

Dimension suffixes: T completion tokens of a micro-batch, R rows of the step.
"""

from collections.abc import Callable
from typing import Any

import polars as pl
import torch
from torch import Tensor

from stages.common.logprobs import entropy, row_logprobs
from stages.common.packing import PackedRow
from stages.update.optimizer import StoredAdamW
from stages.update.reinforce import reinforce_loss


class Meter:
    """Sums over tokens of what compares the trainer's log-probs with the sampler's."""

    def __init__(self) -> None:
        self.tokens = 0
        self.kl = self.entropy = 0.0
        self.low, self.high = float("inf"), float("-inf")

    def add(self, logp_T: Tensor, sampler_T: Tensor, entropy_T: Tensor) -> None:
        log_ratio_T = (logp_T.detach() - sampler_T).double()
        self.tokens += len(log_ratio_T)
        self.kl += float((log_ratio_T.exp() - 1 - log_ratio_T).sum())
        self.entropy += float(entropy_T.double().sum())
        self.low = min(self.low, float(log_ratio_T.min()))
        self.high = max(self.high, float(log_ratio_T.max()))

    def columns(self) -> dict[str, float | None]:
        if not self.tokens:
            return dict.fromkeys(("approx_kl", "ratio_min", "ratio_max", "entropy"))
        ratio = torch.tensor([self.low, self.high], dtype=torch.float64).exp().tolist()
        return {
            "approx_kl": self.kl / self.tokens,
            "ratio_min": ratio[0],
            "ratio_max": ratio[1],
            "entropy": self.entropy / self.tokens,
        }


def optimizer_step(
    model: Any,
    optimizer: StoredAdamW,
    rows: pl.DataFrame,
    micro_batches: list[PackedRow],
    temperature: float,
    progress: Callable[[], None],
) -> dict[str, Any]:
    """Take the step and return its row of the steps table.

    `rows` are the step's rows in the loss, with `advantage`, `sampler_logprobs` and an `index` that is their place.
    Without any micro-batch nothing has a gradient: weights and optimizer state stay as they are.
    """
    device = next(model.parameters()).device
    advantage_R = torch.tensor(rows["advantage"].to_list(), dtype=torch.float32, device=device)
    sampler = rows["sampler_logprobs"].to_list()
    meter, loss_sum = Meter(), 0.0
    for packed in micro_batches:
        logp_T, logits_TV = row_logprobs(model, packed, temperature)
        loss = reinforce_loss(logp_T, advantage_R[packed.row_T], rows.height)
        torch.autograd.backward(loss)
        optimizer.collect_gradients()
        loss_sum += float(loss.detach())
        sampler_T = torch.tensor([x for row in dict.fromkeys(packed.row_T) for x in sampler[row]], device=device)
        meter.add(logp_T, sampler_T, entropy(logits_TV.detach()))
        progress()
    norm, rate = optimizer.step() if micro_batches else (0.0, 0.0)
    return {
        "optimizer_step": optimizer.step_count,
        "rows_in_loss": rows.height,
        "rows_with_gradient": len({row for packed in micro_batches for row in packed.row_T}),
        "tokens": meter.tokens,
        "loss": loss_sum,
        "grad_norm": norm,
        "learning_rate": rate,
        **meter.columns(),
    }
