"""SAPO, soft adaptive policy optimization (Gao et al. 2025, arXiv 2511.20347): a smooth gate instead of a clip.

    loss = -(4 / tau) sigmoid(tau (r - 1)) A        r = pi / pi_old of a token;  tau by the sign of A

At r = 1 value 2 / tau and gradient A; towards either side the gradient fades, faster with a higher tau.
"""

import torch

from stages.common.params import Sapo
from stages.update.tokens import Terms, Tokens


def sapo(tokens: Tokens, options: Sapo) -> Terms:
    """One term per token; nothing is clipped."""
    ratio_T, advantage_T = tokens.log_ratio().exp(), tokens.advantage_T
    tau_T = torch.full_like(ratio_T, options.temperature_negative)
    tau_T[advantage_T > 0] = options.temperature_positive
    return Terms(-(torch.sigmoid(tau_T * (ratio_T - 1)) * 4 / tau_T * advantage_T), ratio_T.detach())
