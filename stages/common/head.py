"""From hidden states to the log-probs of chosen tokens, without more logits than `LOGITS_MB` at once.

A pass whose logits fit keeps their log-softmax, the one tensor [T, V] that its backward pass needs. A longer one goes
chunk by chunk, and computes the head once more in the backward pass.

Dimension suffixes: T predicted tokens, V vocabulary, H hidden size.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

LOGITS_MB = 128  # of one tensor [T, V] in float32; a backward pass holds two


class ChosenTokens(torch.autograd.Function):
    """Log-probs [T] of `target_T` and, if `with_entropy`, entropies [T] under logits [T, V] / temperature, in nats.

    d logp_y / d z_v = [v = y] - p_v            d H / d z_v = -p_v (log p_v + H)
    """

    @staticmethod
    def forward(
        ctx: Any, logits_TV: Tensor, target_T: Tensor, temperature: float, with_entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        logp_TV = log_softmax(logits_TV, temperature)
        entropy_T = entropy_of_logprobs(logp_TV) if with_entropy else None
        ctx.temperature, ctx.dtype = temperature, logits_TV.dtype
        ctx.save_for_backward(logp_TV, target_T, entropy_T)
        ctx.set_materialize_grads(False)
        return logp_TV.gather(-1, target_T[:, None])[:, 0], entropy_T

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, of_logp_T: Tensor | None, of_entropy_T: Tensor | None) -> tuple[Tensor | None, ...]:
        logp_TV, target_T, entropy_T = ctx.saved_tensors
        found_TV = torch.zeros_like(logp_TV) if of_logp_T is None else logp_TV.exp().mul_(-of_logp_T[:, None])
        if of_logp_T is not None:
            found_TV.scatter_add_(-1, target_T[:, None], of_logp_T[:, None])
        if of_entropy_T is not None:
            finite_TV = logp_TV.clamp(min=torch.finfo(logp_TV.dtype).min)
            found_TV -= of_entropy_T[:, None] * logp_TV.exp() * (finite_TV + entropy_T[:, None])
        if ctx.temperature != 1.0:
            found_TV /= ctx.temperature
        return found_TV.to(ctx.dtype), None, None, None


def by_logits(
    logits_TV: Tensor, target_T: Tensor, temperature: float, *, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probs and entropies [T] of tokens by all their logits at once."""
    found: tuple[Tensor, Tensor | None] = ChosenTokens.apply(  # type: ignore[no-untyped-call]
        logits_TV, target_T, temperature, with_entropy
    )
    return found


def log_softmax(logits_TV: Tensor, temperature: float) -> Tensor:
    """In float32 or better."""
    wide_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
    return (wide_TV if temperature == 1.0 else wide_TV / temperature).log_softmax(dim=-1)


def entropy_of_logprobs(logp_NV: Tensor) -> Tensor:
    """Entropy [N] in nats; a probability of zero adds nothing."""
    return -(logp_NV.exp() * logp_NV.clamp(min=torch.finfo(logp_NV.dtype).min)).sum(dim=-1)


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
