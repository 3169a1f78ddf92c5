"""Importance weights for a sampler that is not quite the trainer: another engine, kernel or precision.

    w = pi_trainer / pi_sampler, before the first optimizer step, of a token or of the whole sequence, without gradient
    truncate: w held in [floor, cap] (truncated importance sampling)        mask: w, and 0 outside of [floor, cap]

A masked term keeps its place in the denominators.
"""

import torch
from torch import Tensor

from stages.common.params import ImportanceCorrection
from stages.update.tokens import Tokens


def importance_weights(tokens: Tokens, sampler_T: Tensor, options: ImportanceCorrection) -> tuple[Tensor, Tensor]:
    """The weight of each token, and where the ratio was outside of the range (boolean)."""
    log_ratio_T = tokens.old_T - sampler_T
    if options.level == "sequence":
        log_ratio_T = tokens.spread(tokens.sum_rows(log_ratio_T))
    ratio_T = log_ratio_T.detach().exp()
    outside_T = (ratio_T < options.floor) | (ratio_T > options.cap)
    if options.form == "truncate":
        return ratio_T.clamp(options.floor, options.cap), outside_T
    return torch.where(outside_T, 0.0, ratio_T), outside_T
