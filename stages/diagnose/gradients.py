"""Gradients of several losses over the same rows, and how they lie to each other: norms and cosines.

Every loss here is REINFORCE with weights of its own, loss_e = -sum_i sum_t w_e,it log pi(y_it): other advantages, or
the same ones reduced otherwise, or some of the rows only. One forward pass serves them all.

Dimension suffixes: E losses, T completion tokens of a micro-batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stages.common.logprobs import row_logprobs
from stages.common.packing import PackedRow
from stages.common.policy import trainable
from stages.update.tokens import rows_of

PIECE = 2**18  # numbers
Weights = Sequence[Sequence[float]]  # of each row, by its index: the weight of each of its tokens


def gram_matrix(
    model: Any,
    micro_batches: Sequence[PackedRow],
    losses: Sequence[Weights],
    temperature: float,
    progress: Callable[[], None] = lambda: None,
) -> Tensor:
    """Inner products [E, E], in float64, of the gradients of all losses with respect to the trainable parameters.

    Holds E + 1 copies of the trainable parameters.
    """
    parameters = list(trainable(model).values())
    sums: list[list[Tensor]] = [[torch.zeros_like(p, dtype=torch.float32) for p in parameters] for _ in losses]
    for packed in micro_batches:
        logp_T = row_logprobs(model, packed, temperature)
        rows, _ = rows_of(packed.row_T)
        for weights, gradient in zip(losses, sums, strict=True):
            weight_T = torch.tensor([w for row in rows for w in weights[row]], device=logp_T.device)
            if weight_T.any():
                found = torch.autograd.grad(
                    -(weight_T * logp_T).sum(), parameters, retain_graph=True, allow_unused=True
                )
                for total, part in zip(gradient, found, strict=True):
                    if part is not None:
                        total += part.float()
        progress()
    found_EE = torch.zeros(len(losses), len(losses), dtype=torch.float64)
    for row, left in enumerate(sums):
        for column, right in enumerate(sums[: row + 1]):
            found_EE[row, column] = found_EE[column, row] = _inner(left, right)
    return found_EE


def _inner(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """In float64, of a few numbers at a time: copies of all of them would take longer than the products."""
    pieces = [
        torch.dot(one.double(), other.double())
        for a, b in zip(left, right, strict=True)
        for one, other in zip(torch.split(a.flatten(), PIECE), torch.split(b.flatten(), PIECE), strict=True)
    ]
    return torch.stack(pieces).sum().cpu()


def cosines(gram_EE: Tensor) -> Tensor:
    """Cosines [E, E]; NaN where a gradient is zero."""
    norm_E = gram_EE.diagonal().sqrt()
    return gram_EE / (norm_E[:, None] * norm_E[None, :])
