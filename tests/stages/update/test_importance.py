"""Weights of trainer over sampler, by hand."""

import math

import pytest
import torch

from stages.common.params import ImportanceCorrection
from stages.update.importance import importance_weights
from tests.stages.update.tokens import tokens_of

OLD = [[-1.0, -1.0, -1.0], [-2.0]]
RATIOS = [[0.1, 1.0, 5.0], [3.0]]


def weights(**options):
    sampler = [[old - math.log(r) for old, r in zip(*rows, strict=True)] for rows in zip(OLD, RATIOS, strict=True)]
    flat = torch.tensor([x for row in sampler for x in row], dtype=torch.float64)
    tokens = tokens_of(OLD, OLD, [0.0, 0.0])
    weight, outside = importance_weights(tokens, flat, ImportanceCorrection(**options))
    assert not weight.requires_grad
    return weight.tolist(), outside.tolist()


@pytest.mark.parametrize(
    ("options", "expected", "outside"),
    [
        ({"form": "truncate"}, [0.1, 1, 2, 2], [0, 0, 1, 1]),
        ({"form": "truncate", "floor": 0.5, "cap": 4.0}, [0.5, 1, 4, 3], [1, 0, 1, 0]),
        ({"form": "mask"}, [0.1, 1, 0, 0], [0, 0, 1, 1]),
        ({"form": "mask", "floor": 0.5, "cap": 4.0}, [0, 1, 0, 3], [1, 0, 1, 0]),
        # products .1 * 1 * 5 = .5 and 3
        ({"form": "truncate", "level": "sequence"}, [0.5, 0.5, 0.5, 2], [0, 0, 0, 1]),
        ({"form": "mask", "level": "sequence"}, [0.5, 0.5, 0.5, 0], [0, 0, 0, 1]),
    ],
)
def test_by_hand(options, expected, outside):
    weight, found = weights(**options)
    assert weight == pytest.approx(expected)
    assert found == [bool(x) for x in outside]
