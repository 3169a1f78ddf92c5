"""The soft overlong penalty of DAPO, by hand."""

import pytest

from stages.common.params import ParamsError, Reward
from stages.score.calling.function import of_reward
from stages.score.calling.inspection import check_function
from stages.score.overlong import soft_overlong


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(1, 0.0), (12, 0.0), (13, -0.125), (16, -0.5), (20, -1.0), (25, -1.0)],  # 20 - 8 = 12; (12 - length) / 8
)
def test_by_hand(length, penalty):
    assert soft_overlong([[7] * length], max_length=20, cache=8, prompts=["x"]) == [penalty]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"max_length": 20, "cache": 0}, "cache"),
        ({"max_length": 20, "cache": 21}, "cache"),
        ({"max_length": 20}, "missing 1 required positional argument: 'cache'"),
        ({"max_len": 20, "cache": 8}, "unexpected keyword argument 'max_len'"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_sampled(arguments, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reward = Reward(function="stages.score.overlong:soft_overlong", arguments=arguments)
    with pytest.raises(ParamsError, match=r"params\.yaml: score\.rewards\.long\.arguments: ") as error:
        check_function(of_reward("long", reward), None)
    assert told in str(error.value)
