"""Processes: warm from call to call, gone with the stage however it ends, several at a time, from any thread."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import pytest

from stages.score.calling import processes, resident
from stages.score.calling.function import of_reward
from stages.score.calling.rows import call_rows
from stages.score.calling.side_by_side import cores, side_by_side
from stages.score.rewards import RewardError, reward_columns
from tests.stages.score.calling.code import running

ROOT = Path(__file__).parents[4]
PID = "import os\n{extra}\ndef f(completions, **c): return [float(os.getpid())] * len(completions)"


@pytest.fixture
def steady(code, monkeypatch):
    """The test runner writes into the environment, which an executor must not outlive."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    return code


def pid_of(code, extra="", **options):
    return int(code.score(PID.format(extra=extra), **options)["reward/one"][0])


def test_an_executor_serves_one_call_after_the_other_whatever_the_rows_and_arguments(steady):
    first = pid_of(steady)
    assert first != os.getpid()
    assert pid_of(steady, rows=2) == first
    resident.close_all()
    assert not running(first)


@pytest.mark.parametrize("change", ["code", "file beside it", "environment", "memory"])
def test_another_one_is_started_when_what_it_holds_is_no_longer_right(steady, monkeypatch, change):
    Path("beside.py").write_text("X = 1")
    first = pid_of(steady, extra="import beside")
    if change == "file beside it":
        Path("beside.py").write_text("X = 2")
    if change == "environment":
        monkeypatch.setenv("KEY_OF_A_JUDGE", "secret")
    extra = "import beside, sys" if change == "code" else "import beside"
    second = pid_of(steady, extra=extra, limits={"memory_mb": 4095} if change == "memory" else None)
    assert second != first
    assert not running(first) or change == "memory"


def test_a_module_of_another_package_of_the_project_is_noticed(steady, monkeypatch):
    """It is no part of the function's own package, but the executor has imported it."""
    monkeypatch.syspath_prepend(str(Path.cwd()))
    for name in ("one", "other"):
        Path(name).mkdir()
        Path(name, "__init__.py").touch()
    Path("other/values.py").write_text("VALUE = 1.0")
    Path("one/rewards.py").write_text("from other.values import VALUE\ndef f(completions, **c): return [VALUE]")
    reward = {"one": steady.reward(function="one.rewards:f")}
    assert reward_columns(reward, {"completions": ["a"]})["reward/one"].to_list() == [1.0]
    Path("other/values.py").write_text("VALUE = 2.0")
    assert reward_columns(reward, {"completions": ["a"]})["reward/one"].to_list() == [2.0]


def test_an_executor_that_left_processes_does_not_stay(steady):
    first = pid_of(steady, extra="import subprocess; subprocess.Popen(['sleep', '100'], start_new_session=True)")
    assert not running(first)


def test_one_that_died_at_rest_is_replaced(steady):
    first = pid_of(steady)
    os.kill(first, signal.SIGKILL)
    time.sleep(0.1)
    assert steady.score(PID.format(extra=""))["status/one"].to_list() == ["ok"] * 3


def test_no_more_than_a_few_stay_warm(steady, monkeypatch):
    monkeypatch.setattr(resident, "MOST", 2)
    pids = []
    for number in range(4):
        steady.write(PID.format(extra=""), f"r{number}.py")
        reward = {"one": steady.reward(function=f"r{number}.py:f")}
        pids.append(int(reward_columns(reward, {"completions": ["a"]})["reward/one"][0]))
    assert [running(pid) for pid in pids] == [False, False, True, True]


STAGE = """
import os, sys, time
from threading import Thread
sys.path.insert(0, {root!r})
from tests.stages.score.calling.code import Code
def score():
    Code().score(open("text").read(), rows=1, limits={{"row_seconds": 100.0}})
{run}
"""
HANGING = """
import os, subprocess, time
def f(completions, **c):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open("pids", "a") as file:
                file.write(f"{os.getpid()} {os.getppid()} ")
            time.sleep(100)
        os._exit(0)
    with open("pids", "a") as file:
        file.write(f"{os.getpid()} {os.getppid()} {subprocess.Popen(['sleep', '100']).pid} done ")
    time.sleep(100)
"""


@pytest.mark.parametrize("run", ["score()", "Thread(target=score).start()"], ids=["main thread", "thread"])
@pytest.mark.parametrize("group", [False, True], ids=["process", "group"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_stage_that_is_killed_in_the_middle_of_a_call(code, number, group, run):
    Path("text").write_text(HANGING)
    stage = subprocess.Popen([sys.executable, "-c", STAGE.format(root=str(ROOT), run=run)], start_new_session=True)
    wait_until(lambda: Path("pids").exists() and "done" in Path("pids").read_text(), 30)
    time.sleep(0.1)
    pids = [int(pid) for pid in Path("pids").read_text().replace("done", "").split()]
    assert any(map(running, pids))
    (os.killpg if group else os.kill)(stage.pid, number)
    stage.wait()
    wait_until(lambda: not any(running(pid) for pid in pids if pid != 1), 5)


def test_nothing_outlives_a_stage_that_ends(code):
    Path("text").write_text(
        "import os\ndef f(completions, **c):\n"
        "    open('pids', 'w').write(f'{os.getpid()} {os.getppid()}')\n    return [1]"
    )
    subprocess.run([sys.executable, "-c", STAGE.format(root=str(ROOT), run="score()")], check=True)
    assert [pid for pid in map(int, Path("pids").read_text().split()) if running(pid)] == []


def test_a_supervisor_needs_neither_torch_nor_polars_nor_pydantic():
    heavy = ("torch", "polars", "pydantic", "numpy", "psutil", "asyncio")
    code = f"import sys, stages.score.calling.supervisor; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def wait_until(met, seconds):
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_functions_run_side_by_side_with_results_in_their_order(code, monkeypatch):
    monkeypatch.setattr("stages.score.calling.side_by_side.cores", lambda: 4)
    text = """
    import os, time
    def meet(mine, other):
        open(mine, "w").close()
        deadline = time.monotonic() + 10
        while not os.path.exists(other):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    def slow(completions, **c):
        meet("a", "b")
        time.sleep(0.2)
        return [1.0] * len(completions)
    def fast(completions, **c):
        meet("b", "a")
        return [2.0] * len(completions)
    """
    code.write(text)
    rewards = {name: code.reward(function=f"rewards.py:{name}") for name in ("slow", "fast")}
    frame = reward_columns(rewards, {"completions": ["x"]})
    assert [name for name in frame.columns if name.startswith("reward/")] == ["reward/slow", "reward/fast"]
    assert frame["task_reward"].to_list() == [3.0]


def test_one_function_twice_has_two_executors(code, monkeypatch):
    monkeypatch.setattr("stages.score.calling.side_by_side.cores", lambda: 4)
    code.write("import os, time\ndef f(completions, **c):\n    time.sleep(0.3)\n    return [float(os.getpid())]")
    frame = reward_columns({"a": code.reward(), "b": code.reward()}, {"completions": ["x"]})
    assert frame["reward/a"][0] != frame["reward/b"][0]


def test_the_first_error_is_raised_at_once_and_ends_the_calls_under_way(code, monkeypatch):
    monkeypatch.setattr("stages.score.calling.side_by_side.cores", lambda: 4)
    code.write(
        "import time\ndef bad(completions, **c): return []\ndef hangs(completions, **c): time.sleep(100)\n"
        "def late(completions, **c):\n    time.sleep(0.5)\n    return None"
    )
    rewards = {name: code.reward(function=f"rewards.py:{name}") for name in ("late", "bad", "hangs")}
    rewards["hangs"] = code.reward(function="rewards.py:hangs", limits={"row_seconds": 60.0})
    started = time.monotonic()
    with pytest.raises(RewardError, match=r"score\.rewards\.bad\.function .* returned 0 values"):
        reward_columns(rewards, {"completions": ["x"]})
    assert time.monotonic() - started < 10


def test_no_more_at_once_than_cores(monkeypatch):
    monkeypatch.setattr("stages.score.calling.side_by_side.cores", lambda: 2)
    at_once, most = [], []

    def task(number):
        at_once.append(number)
        most.append(len(at_once))
        time.sleep(0.05)
        at_once.remove(number)
        return number

    assert side_by_side([lambda n=n: task(n) for n in range(6)]) == list(range(6))
    assert max(most) == 2
    assert cores() >= 1


def test_from_a_thread_and_after_the_thread_has_ended(steady):
    """The kernel's own signal for the end of a parent follows the thread: it would kill what stays warm."""
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(pid_of, steady).result()
    time.sleep(0.1)
    assert running(first)
    assert pid_of(steady) == first


def test_from_a_prefect_task_in_a_worker_thread(code):
    from prefect import flow, task
    from prefect.task_runners import ThreadPoolTaskRunner
    from prefect.testing.utilities import prefect_test_harness

    hangs = "def f(completions, **c): return [10 ** 10 ** 10 if c == '1' else 1.0 for c in completions]"

    @task
    def score():
        return code.score(hangs, limits={"batch_seconds": 0.3, "row_seconds": 0.3})["status/one"].to_list()

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=1))
    def whole():
        return score.submit().result()

    with prefect_test_harness(server_startup_timeout=60):
        assert whole() == ["ok", "timeout", "ok"]


def called(code):
    """Without a table, as Polars does not survive a fork."""
    return int(call_rows(of_reward("one", code.reward()), {"completions": ["a"]})[0][0])


def test_a_fork_of_the_stage_has_executors_of_its_own(steady):
    steady.write(PID.format(extra=""))
    mine = called(steady)
    with get_context("fork").Pool(2) as pool:
        others = pool.map(called, [steady, steady])
    assert mine not in others
    assert called(steady) == mine
    wait_until(lambda: not any(map(running, others)), 5)


def test_many_open_files_of_the_stage_are_no_obstacle(code):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with ExitStack() as stack:
            for _ in range(1200):
                stack.enter_context(Path(os.devnull).open())
            assert code.score("def f(completions, **c): return [1.0] * 3")["status/one"].to_list() == ["ok"] * 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ctrl_c_ends_the_call(code):
    Path("text").write_text(HANGING)
    stage = subprocess.Popen(
        [sys.executable, "-c", STAGE.format(root=str(ROOT), run="score()")], stderr=subprocess.DEVNULL
    )
    wait_until(lambda: Path("pids").exists() and "done" in Path("pids").read_text(), 30)
    pids = [int(pid) for pid in Path("pids").read_text().replace("done", "").split()]
    stage.send_signal(signal.SIGINT)
    assert stage.wait(10) != 0
    wait_until(lambda: not any(running(pid) for pid in pids if pid != 1), 5)


LOSING = """
import os, signal, subprocess, time
def f(completions, **c):
    with open("pids", "a") as file:
        file.write(f"{subprocess.Popen(['sleep', '100'], start_new_session=True).pid}\\n")
    if os.fork() == 0:
        os.setsid()
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(100)
    time.sleep(0.1)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(100)
"""


def test_nothing_is_left_where_a_function_kills_what_watches_over_it(code):
    """They are found by what is in their environment, as nothing that descends from the stage leads to them."""
    found = code.verdicts(LOSING, rows=1)
    assert found == [
        (None, "error", "the process was ended from outside, with the process that watches over it"),
    ]
    pids = [int(pid) for pid in Path("pids").read_text().split()]
    assert len(pids) == 2
    assert [pid for pid in pids if running(pid)] == []


def test_processes_are_found_where_the_kernel_lists_no_children(monkeypatch):
    with subprocess.Popen(["sh", "-c", "sleep 100 & wait"], start_new_session=True) as child:
        deadline = time.monotonic() + 10
        while not (below := set(processes.descendants(child.pid))) and time.monotonic() < deadline:
            time.sleep(0.02)
        monkeypatch.setattr(processes, "CHILDREN", "/proc/{pid}/task/{task}/no_such_file")
        assert len(below) == 1
        assert set(processes.descendants(child.pid)) == below
        assert {child.pid, *below} <= set(processes.descendants(os.getpid()))
        processes.kill_session(child.pid)
    assert [pid for pid in below if running(pid)] == []
