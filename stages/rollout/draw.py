"""Drawing a token by inverting the cumulative distribution at a given uniform number.

In two levels, blocks and then tokens of one block, with float64 sums: a float32 running sum over a large vocabulary
loses the tail, and a float64 one over all of it takes as long as the model's forward pass.

Dimension suffixes: B sequences, V vocabulary, N blocks of the vocabulary, C tokens of a block.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 256


def invert_cumulative(probability_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Token ids [B]: the first whose cumulative probability exceeds `uniform_B` (float64, in [0, 1)) of the total.

    Never a token of probability zero.
    """
    missing = -probability_BV.shape[1] % BLOCK
    probability_BNC = pad(probability_BV, (0, missing)).view(len(probability_BV), -1, BLOCK)
    mass_BN = probability_BNC.sum(dim=-1, dtype=torch.float64).cpu()  # on CUDA cumsum would not be deterministic
    cumulative_BN = mass_BN.cumsum(dim=-1)
    target_B = uniform_B.cpu() * cumulative_BN[:, -1]
    block_B = _first_above(cumulative_BN, mass_BN, target_B)
    row_B = torch.arange(len(block_B))
    inside_B = (target_B - (cumulative_BN[row_B, block_B] - mass_BN[row_B, block_B])).clamp(min=0)
    device = probability_BV.device
    chosen_BC = probability_BNC[row_B.to(device), block_B.to(device)].double().cpu()
    token_B = block_B * BLOCK + _first_above(chosen_BC.cumsum(dim=-1), chosen_BC, inside_B)
    return token_B.to(device)


def _first_above(cumulative: Tensor, mass: Tensor, target_B: Tensor) -> Tensor:
    """Index [B] of the first entry above the target; rounding never leads past the last one that has any mass."""
    index_B = torch.searchsorted(cumulative, target_B[:, None], right=True)[:, 0]
    places = torch.arange(mass.shape[1])
    last_B = torch.where(mass > 0, places, 0).amax(dim=1)
    return torch.minimum(index_B, last_B)
