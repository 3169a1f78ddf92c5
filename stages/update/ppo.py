"""PPO's clipped surrogate (Schulman et al. 2017, arXiv 1707.06347), for going over a batch more than once.

    loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)        r = pi / pi_old, of a token or of the whole sequence

DAPO's clip-higher is clip_high above clip_low. Dual clip (Ye et al. 2020, arXiv 1912.09729) bounds the loss of negative
advantages, which a large ratio would let grow without limit, by `dual_clip` times |A|.
"""

import torch

from stages.common.params import Ppo
from stages.update.tokens import Terms, Tokens


def ppo(tokens: Tokens, options: Ppo) -> Terms:
    """One term per token, or one per sequence."""
    by_sequence = options.ratio == "sequence"
    log_ratio_T = tokens.spread(tokens.sum_rows(tokens.log_ratio())) if by_sequence else tokens.log_ratio()
    return clipped(tokens, log_ratio_T.exp(), options, by_sequence=by_sequence)


def clipped(tokens: Tokens, ratio_T: torch.Tensor, options: Ppo, *, by_sequence: bool) -> Terms:
    """The clipped surrogate of any ratio."""
    low, high, advantage_T = 1 - options.clip_low, 1 + options.clip_high, tokens.advantage_T
    gain_T = torch.minimum(ratio_T * advantage_T, ratio_T.clamp(low, high) * advantage_T)
    if options.dual_clip is not None:
        bounded_T = torch.maximum(gain_T, options.dual_clip * advantage_T)
        gain_T = torch.where(advantage_T < 0, bounded_T, gain_T)
    return Terms(-gain_T, (ratio_T < low) & (advantage_T < 0), (ratio_T > high) & (advantage_T > 0), by_sequence)
