"""From hidden states to the log-probs of chosen tokens, without more logits than `LOGITS_MB` at once.

A pass whose logits fit keeps their exponentials, the one tensor [T, V] that its backward pass needs. A longer one goes
chunk by chunk, and computes the head once more in the backward pass.

Dimension suffixes: T predicted tokens, N a few of them, V vocabulary, H hidden size.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

LOGITS_MB = 128  # of one tensor [T, V] in float32; a backward pass holds two
CACHED_MB = 1  # of logits that are worked on at once


class ChosenTokens(torch.autograd.Function):
    """Log-probs [T] of `target_T` and, if `with_entropy`, entropies [T] under logits [T, V] / temperature, in nats.

    With m the largest scaled logit x of a row, w = exp(x - m) and Z = sum(w), of which w is kept for the gradients:

        log p_y = x_y - m - log Z                        H = log Z - sum(w * (x - m)) / Z
        d log p_y / d x_v = [v = y] - w_v / Z            d H / d x_v = -w_v / Z * (log(w_v / Z) + H)
    """

    @staticmethod
    def forward(
        ctx: Any, logits_TV: Tensor, target_T: Tensor, temperature: float, with_entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        wide = torch.promote_types(logits_TV.dtype, torch.float32)
        keeps, size = ctx.needs_input_grad[0], rows_at_once(logits_TV)
        weight_TV = torch.empty_like(logits_TV if keeps else logits_TV[:size], dtype=wide)
        logp_T = torch.empty(len(target_T), dtype=wide, device=logits_TV.device)
        total_T, entropy_T = torch.empty_like(logp_T), torch.empty_like(logp_T) if with_entropy else None
        for start in range(0, len(target_T), size):
            some = slice(start, start + size)
            weight_NV = weight_TV[some] if keeps else weight_TV[: len(target_T[some])]
            shifted_NV = exponentials(logits_TV[some].to(wide), temperature, weight_NV)
            total_T[some] = weight_NV.sum(dim=-1)
            logp_T[some] = shifted_NV.gather(-1, target_T[some, None])[:, 0] - total_T[some].log()
            if entropy_T is not None:
                entropy_T[some] = total_T[some].log() - weighted_sum(weight_NV, shifted_NV) / total_T[some]
        if keeps:
            ctx.temperature, ctx.dtype = temperature, logits_TV.dtype
            ctx.save_for_backward(weight_TV, total_T, target_T, entropy_T)
        ctx.set_materialize_grads(False)
        return logp_T, entropy_T

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, of_logp_T: Tensor | None, of_entropy_T: Tensor | None) -> tuple[Tensor | None, ...]:
        weight_TV, total_T, target_T, entropy_T = ctx.saved_tensors
        given_T = torch.zeros_like(total_T) if of_logp_T is None else of_logp_T
        found_TV = weight_TV * (-given_T / (total_T * ctx.temperature))[:, None]
        found_TV.scatter_add_(-1, target_T[:, None], (given_T / ctx.temperature)[:, None])
        if of_entropy_T is not None:
            logp_TV = weight_TV.log().clamp_(min=torch.finfo(weight_TV.dtype).min).sub_(total_T.log()[:, None])
            scale_T = of_entropy_T / (total_T * ctx.temperature)
            found_TV -= logp_TV.add_(entropy_T[:, None]).mul_(weight_TV).mul_(scale_T[:, None])
        return found_TV.to(ctx.dtype), None, None, None


def rows_at_once(logits_TV: Tensor) -> int:
    """So few on a CPU that they stay in its cache from one operation to the next; on a GPU all."""
    if logits_TV.device.type != "cpu":
        return max(1, len(logits_TV))
    return max(1, CACHED_MB * 2**20 // max(1, logits_TV[:1].numel() * 4))


def exponentials(logits_NV: Tensor, temperature: float, weight_NV: Tensor) -> Tensor:
    """Fill `weight_NV` with w, and return x - m."""
    scaled_NV = logits_NV if temperature == 1.0 else logits_NV / temperature
    shifted_NV = scaled_NV - scaled_NV.amax(dim=-1, keepdim=True)
    torch.exp(shifted_NV, out=weight_NV)
    return shifted_NV


def weighted_sum(weight_NV: Tensor, shifted_NV: Tensor) -> Tensor:
    """Sum over the vocabulary of the products [N]; what has no probability adds nothing, though its logit be -inf."""
    found_N = torch.bmm(weight_NV[:, None], shifted_NV[:, :, None])[:, 0, 0]
    if found_N.isnan().any():
        finite_NV = shifted_NV.clamp(min=torch.finfo(shifted_NV.dtype).min)
        found_N = torch.bmm(weight_NV[:, None], finite_NV[:, :, None])[:, 0, 0]
    return found_N


def by_logits(
    logits_TV: Tensor, target_T: Tensor, temperature: float, *, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probs and entropies [T] of tokens by all their logits at once."""
    found: tuple[Tensor, Tensor | None] = ChosenTokens.apply(  # type: ignore[no-untyped-call]
        logits_TV, target_T, temperature, with_entropy
    )
    return found


def chosen_tokens(
    head: Callable[[Tensor], Tensor],
    hidden_TH: Tensor,
    target_T: Tensor,
    temperature: float,
    *,
    vocabulary: int,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probs and entropies [T] of tokens by the head's logits; with gradient, if gradients are enabled.

    `vocabulary`: how many logits the head gives for a token.
    """

    def some(part_H: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None]:
        return by_logits(head(part_H), target, temperature, with_entropy=with_entropy)

    size = max(1, LOGITS_MB * 2**20 // (4 * vocabulary))
    if len(target_T) <= size:
        return some(hidden_TH, target_T)
    parts = [
        checkpoint(some, part_H, target, use_reentrant=False, preserve_rng_state=False)
        for part_H, target in zip(torch.split(hidden_TH, size), torch.split(target_T, size), strict=True)
    ]
    logp, entropy = zip(*parts, strict=True)
    return torch.cat(logp), torch.cat(entropy) if with_entropy else None
