"""Warm-up, decay and floor of the learning rate."""

import pytest

from stages.common.params import Schedule
from stages.common.schedule import learning_rate


@pytest.mark.parametrize(
    ("step", "schedule", "expected"),
    [
        (1, Schedule(), 1.0),
        (1000, Schedule(), 1.0),
        (1, Schedule(warmup=4), 0.25),
        (4, Schedule(warmup=4), 1.0),
        (1, Schedule(horizon=11, floor=0.0), 1.0),
        (6, Schedule(horizon=11, floor=0.0), 0.5),
        (11, Schedule(horizon=11, floor=0.0), 0.0),
        (6, Schedule(horizon=11, floor=0.2), 0.6),
        (1000, Schedule(horizon=11, floor=0.2), 0.2),
        (1, Schedule(warmup=2, horizon=12), 0.5),
        (2, Schedule(warmup=2, horizon=12), 1.0),
        (7, Schedule(warmup=2, horizon=12, floor=0.0), 0.5),
    ],
)
def test_learning_rate(step, schedule, expected):
    assert learning_rate(step, 1.0, schedule) == pytest.approx(expected)
