"""Formulas that hang a parser, from a real Prefect task: each costs its limit, and no process is left."""

import time

import psutil
import pytest

from stages.common.params import Reward
from stages.score.calling.resident import close_all
from stages.score.rewards import reward_columns

pytest.importorskip("math_verify")
FORMULAS = [r"\boxed{9^{9^{9^{9}}}}", r"\boxed{5}", r"\boxed{10^{10}!!!}", r"\boxed{6}"]
ROW_SECONDS, STARTED = 4.0, 6.0  # a killed process is started again, and imports math-verify and sympy


def below():
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def in_a_task(tmp_path, monkeypatch):
    """Scores the formulas in a Prefect task, with the time that math-verify gives itself: status, reward, seconds."""
    from prefect import flow, task
    from prefect.task_runners import ThreadPoolTaskRunner
    from prefect.testing.utilities import prefect_test_harness

    monkeypatch.chdir(tmp_path)
    count = len(FORMULAS)
    inputs = {"completions": FORMULAS, "answer": ["5"] * count, "prompt_id": [f"p{i}" for i in range(count)]}
    inputs |= {"sample": [0] * count}

    @task
    def score(seconds):
        limits = {"batch_seconds": ROW_SECONDS, "row_seconds": ROW_SECONDS}
        arguments = {"seconds": seconds}
        function = "stages.score.math_answer:math_answer"
        reward = Reward(function=function, arguments=arguments, limits=limits, cache=False)
        start = time.monotonic()
        found = reward_columns({"math": reward}, inputs)
        return found["status/math"].to_list(), found["reward/math"].to_list(), time.monotonic() - start

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=1))
    def whole(seconds):
        return score.submit(seconds).result()

    with prefect_test_harness(server_startup_timeout=60):
        close_all()
        before = below()
        yield whole
        close_all()
        assert below() <= before


def test_a_power_tower_costs_at_most_its_limit_and_the_other_rows_are_scored(in_a_task):
    status, rewards, took = in_a_task(seconds=30)  # the alarm of math-verify comes too late: the limit ends the process
    assert status == ["timeout", "ok", "timeout", "ok"]
    assert rewards == [None, 1.0, None, 0.0]
    assert took < 2 * (ROW_SECONDS + STARTED) + STARTED

    status, rewards, took = in_a_task(seconds=1)  # here it comes in time, or holds off until the limit
    assert [status[1], status[3]] == ["ok", "ok"]
    assert {status[0], status[2]} <= {"error", "timeout"}
    assert rewards == [None, 1.0, None, 0.0]
    assert took < 2 * (ROW_SECONDS + STARTED) + STARTED
