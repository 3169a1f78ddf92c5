"""Drawing a token by inverting the cumulative distribution at a given uniform number.

In two levels, blocks and then tokens of one block, in float64 but for the sum of the 256 numbers of a block: a float32
running sum over a large vocabulary loses the tail, and a float64 one over all of it takes as long as the forward pass.

Dimension suffixes: B sequences, V vocabulary, N blocks of the vocabulary, C tokens of a block.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 256


def in_blocks(weight_BV: Tensor) -> Tensor:
    """[B, N, C], copied only where the last block has to be filled with zeros."""
    missing = -weight_BV.shape[1] % BLOCK
    return (pad(weight_BV, (0, missing)) if missing else weight_BV).view(len(weight_BV), -1, BLOCK)


def mass_of(weight_BNC: Tensor) -> Tensor:
    """The sum of each block [B, N] in float64, on the CPU: on CUDA cumsum would not be deterministic."""
    return weight_BNC.sum(dim=-1).cpu().double()


def invert_cumulative(weight_BNC: Tensor, mass_BN: Tensor, uniform_B: Tensor) -> Tensor:
    """Token ids [B], on the CPU: the first whose cumulative weight exceeds `uniform_B` (float64, in [0, 1)) of the
    total. Weights are probabilities times any number of the row's own. Never a token of weight zero.
    """
    cumulative_BN = mass_BN.cumsum(dim=-1)
    target_B = uniform_B * cumulative_BN[:, -1]
    block_B = _first_above(cumulative_BN, mass_BN, target_B)
    row_B = torch.arange(len(block_B))
    inside_B = (target_B - (cumulative_BN[row_B, block_B] - mass_BN[row_B, block_B])).clamp(min=0)
    device = weight_BNC.device
    chosen_BC = weight_BNC[row_B.to(device), block_B.to(device)].cpu().double()
    return block_B * BLOCK + _first_above(chosen_BC.cumsum(dim=-1), chosen_BC, inside_B)


def _first_above(cumulative: Tensor, mass: Tensor, target_B: Tensor) -> Tensor:
    """Index [B] of the first entry above the target; rounding never leads past the last one that has any mass."""
    index_B = torch.searchsorted(cumulative, target_B[:, None], right=True)[:, 0]
    places = torch.arange(mass.shape[1])
    last_B = torch.where(mass > 0, places, 0).amax(dim=1)
    return torch.minimum(index_B, last_B)
