"""The length penalty, by hand."""

import pytest

from stages.score.length import check, length_penalty


@pytest.mark.parametrize(
    ("length", "penalty"), [(0, -0.5), (1, -0.4), (4, -0.1), (5, 0.0), (8, 0.0), (9, -0.1), (12, -0.4), (99, -0.5)]
)
def test_by_hand(length, penalty):
    arguments = {"scale": 10, "low": 5, "high": 8, "maximum": 0.5}
    check(**arguments)
    assert length_penalty(["x"], [[7] * length], **arguments) == pytest.approx([penalty])


@pytest.mark.parametrize(("unit", "penalty"), [("tokens", -0.2), ("words", -0.1), ("characters", -0.5)])
def test_units(unit, penalty):
    assert length_penalty(["ab cd"], [[1, 2, 3]], scale=10, unit=unit, low=None, high=1, maximum=0.5) == pytest.approx(
        [penalty if unit != "characters" else -0.4]
    )


def test_one_bound_is_enough():
    assert length_penalty(["a", "a b c"], [[], []], scale=2, unit="words", low=2) == [-0.5, 0.0]
    assert length_penalty(["a", "a b c"], [[], []], scale=2, unit="words", high=2) == [0.0, -0.5]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"scale": 1}, "without low and high"),
        ({"scale": 0, "low": 1}, "scale"),
        ({"scale": 1, "low": 3, "high": 2}, "at most high"),
        ({"scale": 1, "low": -1}, "low"),
        ({"scale": 1, "high": 1.5}, "high"),
        ({"scale": 1, "low": 1, "unit": "lines"}, "unit is one of"),
        ({"scale": 1, "low": 1, "maximum": -1}, "maximum"),
    ],
)
def test_wrong_arguments(arguments, told):
    with pytest.raises(ValueError, match=told):
        check(**arguments)
