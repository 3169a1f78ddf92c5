"""The value loss: half the squared distance to the return, clipped as in PPO's first implementations.

    L_t = 1/2 max( (V_t - R_t)^2, (clip(V_t, V_old_t - c, V_old_t + c) - R_t)^2 )        c null: the first of the two

V_old is the value that the advantages were computed with. The worse of the two counts, so that a value which has moved
by more than c towards its return gets no further gradient. Advantages are off by no more than c then; whether that
helps is disputed (Andrychowicz et al. 2020, arXiv 2006.05990, found that it rather hurts).

Dimension suffix: T completion tokens of a micro-batch.
"""

import torch
from torch import Tensor


def value_losses(value_T: Tensor, return_T: Tensor, old_T: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """Loss of each token, and where the clipped one counted (boolean). The caller divides by the step's tokens."""
    plain_T = 0.5 * (value_T - return_T).square()
    if clip is None:
        return plain_T, torch.zeros_like(plain_T, dtype=torch.bool)
    held_T = torch.minimum(torch.maximum(value_T, old_T - clip), old_T + clip)
    clipped_T = 0.5 * (held_T - return_T).square()
    return torch.maximum(plain_T, clipped_T), clipped_T > plain_T
