"""The repetition penalty, by hand."""

import pytest

from stages.score.repetition import check, repeated_share, repetition_penalty


@pytest.mark.parametrize(
    ("text", "n", "penalty"),
    [
        ("a b c d", 2, 0.0),
        ("a b a b", 2, -1 / 3),  # ab ba ab
        ("a a a a a", 1, -0.8),
        ("A a", 1, -0.5),
        ("a a", 3, 0.0),
        ("", 1, 0.0),
    ],
)
def test_by_hand(text, n, penalty):
    assert repetition_penalty([text], [[]], n=n) == pytest.approx([penalty])
    assert repetition_penalty([text], [[]], n=n, maximum=0.5) == pytest.approx([penalty / 2])


def test_tokens():
    assert repetition_penalty(["x", "x"], [[1, 2, 1, 2], [1, 2, 3]], n=2, of="tokens") == pytest.approx([-1 / 3, 0.0])


def test_it_is_bounded_and_never_minus_zero():
    assert 0.99 < repeated_share([1] * 1000, 1) < 1
    assert str(repetition_penalty(["a b"], [[]], n=1)[0]) == "0.0"


@pytest.mark.parametrize("arguments", [{"n": 0}, {"n": 2.0}, {"n": 2, "of": "lines"}, {"n": 2, "maximum": 0}])
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match=f"repetition_penalty: {list(arguments)[-1]}"):
        check(**arguments)
