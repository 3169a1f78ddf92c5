"""Which iterations keep their checkpoints: hand tables over windows that exist as plans alone."""

import polars as pl
import pytest

from pipeline.plan import Plan
from pipeline.storage.keep import best, kept
from pipeline.storage.windows import Window
from stages.common.errors import StageError
from stages.common.params.storage import Storage
from stages.common.paths import iteration_name


def window(number, trained=5, *, is_open=False, has_end=True):
    """Of five iterations, of a run of fifteen."""
    plan = Plan(15, 5, 5, number, (number - 1) * 5 + 1)
    return Window(plan, {f"update@{name}": {} for name in plan.names[:trained]}, is_open, has_end)


def names(*numbers):
    return [iteration_name(number) for number in numbers]


TWO_AND_A_HALF = [window(1), window(2), window(3, 3, is_open=True)]
HISTORY = pl.DataFrame({"iteration": [1, 2, 3, 4, 12], "reward": [0.1, 0.7, None, 0.7, 0.9], "alarms": [None] * 5})


@pytest.mark.parametrize(
    ("options", "goes"),
    [
        ({}, []),
        ({"keep_last": 1}, [1, 2, 3, 4, 6, 7, 8, 9]),
        ({"keep_last": 4}, [1, 2, 3, 4, 6, 7, 8, 9]),
        ({"keep_last": 6}, [1, 2, 3, 4, 6, 7]),  # 8 to 13: the run has got to 13, of 15 planned
        ({"keep_last": 100}, []),
        ({"keep_last": 1, "keep_every": 3}, [1, 2, 4, 7, 8]),
        ({"keep_last": 1, "best": "reward"}, [1, 3, 4, 6, 7, 8, 9]),  # 2 before 4, its equal; 12 is in the open window
        ({"keep_last": 5, "keep_every": 4, "best": "reward"}, [1, 3, 6, 7]),
    ],
)
def test_what_goes_of_two_finished_windows_and_an_open_one(options, goes):
    keep = kept(Storage(**options), TWO_AND_A_HALF, HISTORY)
    assert [name for name in names(*range(1, 11)) if name not in keep] == names(*goes)
    assert set(names(5, 10, 11, 12, 13, 14, 15)) <= set(keep)


@pytest.mark.parametrize("left", [window(2, 3), window(2, has_end=False)])
def test_a_window_that_was_left_before_its_end_keeps_everything(left):
    keep = kept(Storage(keep_last=1), [window(1), left, window(3, 0, is_open=True)], None)
    assert set(names(6, 7, 8, 9, 10)) <= set(keep)
    assert not set(names(1, 2, 3, 4)) & set(keep)


@pytest.mark.parametrize(
    ("column", "history", "message"),
    [
        ("reward", None, "needs the history"),
        ("rewards", HISTORY, "is not a column of the history; it has iteration, reward"),
        ("reward", HISTORY.filter(pl.col("iteration") == 3), "has no value of it for i0001 to i0004"),
    ],
)
def test_a_best_that_cannot_be_told_is_refused(column, history, message):
    with pytest.raises(StageError, match=message):
        best(column, names(1, 2, 3, 4), history)
