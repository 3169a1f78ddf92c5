"""CISPO (MiniMax-M1, arXiv 2506.13585): REINFORCE weighted by the clipped ratio, which has no gradient.

    loss = -sg[clip(r, 1 - clip_low, 1 + clip_high)] A log pi        r = pi / pi_old of a token

PPO's clip takes the gradient away from tokens whose ratio left the range; here every token keeps one.
"""

import torch

from stages.common.params import Cispo
from stages.update.tokens import Terms, Tokens


def cispo(tokens: Tokens, options: Cispo) -> Terms:
    """One term per token."""
    ratio_T = tokens.log_ratio().detach().exp()
    low, high = 0.0 if options.clip_low is None else 1 - options.clip_low, 1 + options.clip_high
    loss_T = -(ratio_T.clamp(low, high) * tokens.advantage_T * tokens.logp_T)
    return Terms(loss_T, ratio_T, torch.lt(ratio_T, low), torch.gt(ratio_T, high))
