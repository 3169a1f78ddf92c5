"""PPO's clipped surrogate (Schulman et al. 2017, arXiv 1707.06347), for going over a batch more than once.

    loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)        r = pi / pi_old, of a token or of the whole sequence

DAPO's clip-higher is clip_high above clip_low. Dual clip (Ye et al. 2020, arXiv 1912.09729) bounds the loss of negative
advantages, which a large ratio would let grow without limit, by `dual_clip` times |A|.
"""

from dataclasses import dataclass

import torch

from stages.common.params import Ppo
from stages.update.tokens import Terms, Tokens


@dataclass(frozen=True)
class Bounds:
    """How far a ratio may go from 1 downwards and upwards, and, for negative advantages, at all."""

    clip_low: float
    clip_high: float
    dual_clip: float | None = None


def ppo(tokens: Tokens, options: Ppo) -> Terms:
    """One term per token, or one per sequence."""
    bounds = Bounds(options.clip_low, options.clip_high, options.dual_clip)
    if options.ratio == "token":
        return clipped(tokens, tokens.log_ratio().exp(), bounds, of_sequences=False)
    product_T = tokens.spread(tokens.sum_rows(tokens.log_ratio())).exp()
    return clipped(tokens, product_T, bounds, of_sequences=True)


def clipped(tokens: Tokens, ratio_T: torch.Tensor, bounds: Bounds, *, of_sequences: bool) -> Terms:
    """The clipped surrogate of any ratio."""
    low, high, advantage_T = 1 - bounds.clip_low, 1 + bounds.clip_high, tokens.advantage_T
    gain_T = torch.minimum(ratio_T * advantage_T, ratio_T.clamp(low, high) * advantage_T)
    dual_T = None
    if bounds.dual_clip is not None:
        dual_T = (advantage_T < 0) & (ratio_T > bounds.dual_clip)
        gain_T = torch.where(dual_T, bounds.dual_clip * advantage_T, gain_T)
    return Terms(
        loss_T=-gain_T,
        ratio_T=ratio_T.detach(),
        clipped_low_T=(ratio_T < low) & (advantage_T < 0),
        clipped_high_T=(ratio_T > high) & (advantage_T > 0),
        clipped_dual_T=dual_T,
        of_sequences=of_sequences,
    )
