"""The soft overlong penalty of DAPO, by hand."""

import pytest

from stages.common.params import ParamsError
from stages.score.overlong import soft_overlong


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(1, 0.0), (12, 0.0), (13, -0.125), (16, -0.5), (20, -1.0), (25, -1.0)],  # 20 - 8 = 12; (12 - length) / 8
)
def test_by_hand(length, penalty):
    assert soft_overlong([[7] * length], max_length=20, cache=8, prompts=["x"]) == [penalty]


@pytest.mark.parametrize("cache", [0, -1, 21])
def test_a_cache_that_is_no_part_of_the_length_is_refused(cache):
    with pytest.raises(ParamsError, match="soft_overlong: cache"):
        soft_overlong([[1]], max_length=20, cache=cache)
