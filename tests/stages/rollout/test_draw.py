"""Drawing by inversion: the exact shares, in small and in large vocabularies, and never a token without probability."""

import numpy as np
import pytest
import torch

from stages.rollout.draw import BLOCK, in_blocks, invert_cumulative, mass_of


def invert(probability, uniform):
    blocks = in_blocks(probability)
    return invert_cumulative(blocks, mass_of(blocks), uniform)


@pytest.mark.parametrize("size", [1, 4, BLOCK, BLOCK + 1, 5000])
def test_it_is_the_inverse_of_the_cumulative_sum(size):
    generator = torch.Generator().manual_seed(size)
    probability = torch.rand(size, generator=generator).pow(8)
    probability /= probability.sum()
    uniform = torch.from_numpy((np.arange(4000) + 0.5) / 4000)
    found = invert(probability.expand(4000, size), uniform)
    cumulative = probability.double().cumsum(0)
    plain = torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
    assert (found != plain).float().mean() < 2e-3  # equal but for rounding at a token's edge
    assert (found - plain).abs().max() <= 1


def test_zero_probability_is_never_drawn():
    probability = torch.zeros(6, 3 * BLOCK)
    probability[:, 5], probability[:, BLOCK + 7] = 0.25, 0.75
    uniform = torch.tensor([0.0, 0.2499, 0.25, 0.9, 1 - 2**-53, 0.1], dtype=torch.float64)
    assert invert(probability, uniform).tolist() == [5, 5, BLOCK + 7, BLOCK + 7, BLOCK + 7, 5]


def test_rows_are_independent():
    probability = torch.eye(4)
    assert invert(probability, torch.full((4,), 0.5, dtype=torch.float64)).tolist() == [0, 1, 2, 3]
