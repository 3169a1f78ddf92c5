"""What a function does on one row costs that row its score, and no other: status and message by kind of failure."""

import math
from pathlib import Path

import pytest

from stages.score.rewards import RewardError
from tests.stages.score.calling.code import running

ON_ROW_1 = """
import ctypes, os, signal, sys, time, threading
{extra}
def f(completions, **columns):
    if "1" in completions:
        {body}
    return [float(text) for text in completions]
"""
OK = [(0.0, "ok", None), (2.0, "ok", None)]


def on_row_1(body, extra=""):
    return ON_ROW_1.format(body=body, extra=extra)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("raise ValueError('odd')", "error", "ValueError: odd"),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt: "),
        ("raise BaseException('bare')", "error", "BaseException: bare"),
        ("1 / 0", "error", "ZeroDivisionError: division by zero"),
        ("sys.exit(3)", "error", "the process ended with exit status 3"),
        ("sys.exit('bye')", "error", "the process ended with exit status 1"),
        ("sys.exit()", "error", "the process ended with exit status 0"),
        ("os._exit(4)", "error", "the process ended with exit status 4"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "error", "killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "error", "killed by SIGTERM"),
        ("ctypes.string_at(0)", "error", "killed by SIGSEGV"),
        ("os.abort()", "error", "killed by SIGABRT"),
        ("bytearray(1 << 40)", "error", "used more than 4096 MB"),
        ("f(completions)", "error", "RecursionError: maximum recursion depth exceeded"),
        ("os.closerange(0, 100)", "error", "the process ended with exit status 70"),
        ("os.kill(os.getppid(), signal.SIGKILL)", "error", "the process was ended from outside, with the process that"),
    ],
)
def test_a_row_that_fails_has_its_reason_and_the_others_their_scores(code, body, status, message):
    found = code.verdicts(on_row_1(body))
    assert [found[0], found[2]] == OK
    value, told_status, told = found[1]
    assert (value, told_status) == (None, status)
    assert told.startswith(message)


@pytest.mark.parametrize(
    "body",
    [
        "time.sleep(100)",
        "exec('while True: pass')",
        "ctypes.CDLL(None).sleep(100)",
        "10 ** 10 ** 10",  # a single operation in C, which no signal handler of Python interrupts
        "threading.Event().wait()",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(100)",
        "import asyncio; asyncio.run(asyncio.sleep(100))",
        "sys.stdin.read() or time.sleep(100)",
    ],
)
def test_a_row_that_hangs_costs_its_time_limit(code, body):
    found = code.verdicts(on_row_1(body), limits={"batch_seconds": 0.3, "row_seconds": 0.4})
    assert found == [OK[0], (None, "timeout", "more than 0.4 s"), OK[1]]


def test_a_call_of_many_rows_has_the_batch_limit_and_one_of_a_single_row_the_row_limit(code):
    slow = "import time\ndef f(completions, **c):\n    time.sleep(0.15 * len(completions))\n"
    slow += "    return [1] * len(completions)"
    assert [v[1] for v in code.verdicts(slow, limits={"batch_seconds": 5, "row_seconds": 0.1})] == ["ok"] * 3
    found = code.verdicts(slow, rows=1, limits={"batch_seconds": 5, "row_seconds": 0.1})
    assert found == [(None, "timeout", "more than 0.1 s")]


@pytest.mark.parametrize(
    "body",
    [
        "held = [bytearray(os.urandom(1)) * (1 << 20) for _ in range(10_000)]",
        # shares of several processes, each within the limit of its own
        "[os.fork() or (bytearray(b'x') * (150 << 20), time.sleep(100)) for _ in range(4)]; time.sleep(100)",
    ],
    ids=["one", "several"],
)
def test_memory_over_the_limit(code, body):
    found = code.verdicts(on_row_1(body), limits={"memory_mb": 400})
    assert found == [OK[0], (None, "error", "used more than 400 MB"), OK[1]]


def test_memory_that_no_limit_of_the_process_sees(code):
    """Shared pages of a file do not count as data: they are seen from outside."""
    body = (
        "import mmap; held = mmap.mmap(-1, 1 << 30); [held.write(bytes(1 << 20)) for _ in range(1024)]; time.sleep(9)"
    )
    found = code.verdicts(on_row_1(body), limits={"memory_mb": 400})
    assert found[1] == (None, "error", "used more than 400 MB")


def test_pages_that_processes_share_are_counted_once(code):
    body = "[os.fork() or time.sleep(100) for _ in range(6)]; time.sleep(0.5)"
    extra = "held = bytearray(b'x') * (150 << 20)"
    found = code.verdicts(on_row_1(body, extra), limits={"memory_mb": 400})
    assert [v[1] for v in found] == ["ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("value", "status", "message"),
    [
        ("float('nan')", "invalid", "not finite: nan"),
        ("float('inf')", "invalid", "not finite: inf"),
        ("-math.inf", "invalid", "not finite: -inf"),
        ("'good'", "invalid", "not a number: 'good'"),
        ("[1.0]", "invalid", "not a number: [1.0]"),
        ("'\\ud800'", "invalid", "not a number: '\\ud800'"),
        ("1j", "invalid", "not a number: 1j"),
        ("10 ** 400", "invalid", "not a number: too large"),
        ("None", "missing", "the function returned None"),
    ],
)
def test_a_value_that_is_no_score(code, value, status, message):
    found = code.verdicts(f"import math\ndef f(completions, **c): return [0, {value}, 2]")
    assert found == [OK[0], (None, status, message), OK[1]]


def test_text_that_no_table_takes_is_replaced(code):
    found = code.verdicts(on_row_1("raise ValueError('a\\ud800b')"))
    assert found[1] == (None, "error", "ValueError: a?b")
    assert code.verdicts("class A:\n    __repr__ = lambda s: '\\ud800'\ndef f(completions, **c): return [A(), 1, 1]")[
        0
    ] == (
        None,
        "invalid",
        "not a number: ?",
    )


SPAWNS = {
    "child": "note(subprocess.Popen(['sleep', '100']).pid)",
    "session of its own": "note(subprocess.Popen(['sleep', '100'], start_new_session=True).pid)",
    "ignores signals": "note(subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 100'], start_new_session=True).pid)",
    "double fork": """
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            note(os.getpid())
            os.closerange(0, 100)
            time.sleep(100)
        os._exit(0)
    time.sleep(0.1)
    """,
    "fork that comes back": "os.fork()",
    "multiprocessing": "note(start_process())",
    "forks of forks": "spread(); time.sleep(0.1)",
}
SPAWNING = """
import multiprocessing, os, signal, subprocess, time
def note(pid):
    with open("pids", "a") as file:
        file.write(f"{{pid}}\\n")
def start_process():
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
    process.start()
    return process.pid
def spread(depth=4):
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            note(os.getpid())
            if depth:
                spread(depth - 1)
            time.sleep(100)
def f(completions, **columns):
    {body}
    {after}
    return [float(text) for text in completions]
"""


@pytest.mark.parametrize("after", ["", "time.sleep(100)", "os._exit(3)"], ids=["returns", "hangs", "exits"])
@pytest.mark.parametrize("how", SPAWNS)
def test_no_process_is_left_however_it_was_started(code, how, after):
    limits = {"batch_seconds": 1.0, "row_seconds": 0.5}
    text = SPAWNING.format(body=SPAWNS[how].strip(), after=after)
    if after == "os._exit(3)":
        with pytest.raises(RewardError, match="ended with exit status 3"):
            code.verdicts(text, rows=2, limits=limits)
    else:
        found = code.verdicts(text, rows=2, limits=limits)
        assert [v[1] for v in found] == (["timeout"] * 2 if after else ["ok"] * 2)
    pids = [int(pid) for pid in Path("pids").read_text().split()] if Path("pids").exists() else []
    assert pids or how == "fork that comes back"
    assert [pid for pid in pids if running(pid)] == []


def test_printing_much_neither_blocks_nor_breaks_anything_and_is_kept_in_bounds(code):
    body = "print('x' * 50_000_000); sys.stderr.write('y' * 50_000_000); os.write(1, b'z' * 50_000_000)"
    assert [v[1] for v in code.verdicts(on_row_1(body))] == ["ok"] * 3
    log = Path("data/logs/rewards/one.log")
    assert 64 * 1024 <= log.stat().st_size < 66 * 1024
    assert "more bytes of this call are not kept" in log.read_text()


def test_what_is_printed_and_raised_is_in_the_log_with_the_row(code):
    code.score(on_row_1("print('looking at it'); raise ValueError('odd')"))
    log = code.log()
    assert "prompt_id p1, sample 0\nlooking at it\nTraceback" in log
    assert "3 rows from prompt_id p0, sample 0" in log
    assert "ValueError: odd" in log


def test_last_words_of_a_process_that_dies_are_kept(code):
    code.score(on_row_1("print('before the end'); os._exit(1)"))
    assert "before the end" in code.log()


def test_a_quiet_function_has_no_log(code):
    code.score("def f(completions, **c): return [1] * len(completions)")
    assert not Path("data/logs").exists()


def test_standard_input_is_empty(code):
    assert code.verdicts("import sys\ndef f(completions, **c): return [len(sys.stdin.read())] * 3")[0][:2] == (
        0.0,
        "ok",
    )


def test_another_working_folder_lasts_for_one_call(code):
    text = (
        "import os\nhome = os.getcwd()\ndef f(completions, **c):\n    same = os.getcwd() == home\n    os.chdir('/')\n"
    )
    found = code.verdicts(text + "    return [float(same)] * len(completions)", rows_per_call=1)
    assert [v[0] for v in found] == [1.0] * 3


def test_inputs_that_a_function_changes_are_its_own(code):
    text = """
    def f(completions, ids, **columns):
        found = [float(len(x)) for x in ids]
        completions.clear()
        ids[0].append(9)
        if len(found) > 1:
            raise ValueError("again")
        return found
    """
    ids = [[1], [1, 2], [1, 2, 3]]
    assert [v[0] for v in code.verdicts(text, columns={"ids": ids})] == [1.0, 2.0, 3.0]
    assert ids == [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("async def f(completions, **c):\n    import asyncio\n    return await asyncio.sleep(0, [1, 2, 3])", [1, 2, 3]),
        ("def f(completions, **c): yield from (1, None, 3)", [1, None, 3]),
        ("import numpy as np\ndef f(completions, **c): return np.array([1, np.nan, 3], dtype='f4')", [1, None, 3]),
        ("import numpy as np\ndef f(completions, **c): return [np.float32(.5), np.True_, np.int8(3)]", [0.5, 1, 3]),
        ("import numpy as np\ndef f(completions, **c): return np.ones((3, 2))", [None] * 3),
        ("def f(completions, **c): return (True, False, 3)", [1, 0, 3]),
        ("class F:\n    def __call__(self, completions, **c): return [1, 2, 3]\nf = F()", [1, 2, 3]),
        ("import functools\ndef g(n, completions, **c): return [n] * 3\nf = functools.partial(g, 7)", [7] * 3),
    ],
)
def test_results_of_many_kinds(code, text, values):
    assert [v[0] for v in code.verdicts(text)] == values


def test_async_clients_of_a_module_go_on_working(code):
    """All calls are on one event loop, and tasks that a call left are ended with it."""
    text = """
    import asyncio
    lock, left = None, []
    async def f(completions, **columns):
        global lock
        lock = lock or (asyncio.Lock(), asyncio.get_running_loop())
        async with lock[0]:
            left.append(asyncio.create_task(asyncio.sleep(100)))
            await asyncio.sleep(0)
        assert lock[1] is asyncio.get_running_loop()
        assert all(task.cancelled() for task in left[:-1])
        return [1.0] * len(completions)
    """
    assert [v[1] for v in code.verdicts(text, rows_per_call=1)] == ["ok"] * 3


def test_async_function_that_fails_on_a_row(code):
    text = "async def f(completions, **c):\n    if '1' in completions: raise OSError('down')\n"
    text += "    return [1.0] * len(completions)"
    assert code.verdicts(text)[1] == (None, "error", "OSError: down")


def test_environment_is_the_stages_and_one_core(code, monkeypatch):
    for name in ("OMP_NUM_THREADS", "PYTHONHASHSEED"):
        monkeypatch.delenv(name, raising=False)
    text = """
    import os, threading
    def f(completions, **c):
        return [float(x) for x in (os.environ["OMP_NUM_THREADS"], os.environ["KEY"], os.environ["PYTHONHASHSEED"])]
    """
    monkeypatch.setenv("KEY", "7")
    assert [v[0] for v in code.verdicts(text)] == [1.0, 7.0, 0.0]
    monkeypatch.setenv("KEY", "8")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [v[0] for v in code.verdicts(text)] == [2.0, 8.0, 0.0]


def test_runs_in_the_main_thread_without_descriptors_of_the_stage(code, tmp_path):
    text = """
    import os, threading, signal
    def f(completions, **c):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        names = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
        held = [name for name in names if "secret" in name or "socket" in name]
        return [threading.current_thread() is threading.main_thread(), len(held), os.getsid(0) == os.getpid()]
    """
    with (tmp_path / "secret").open("w"):
        assert [v[0] for v in code.verdicts(text)] == [1.0, 0.0, 1.0]


def test_a_function_of_several_failing_rows_has_each_reason(code):
    text = """
    import os, time
    def f(completions, **c):
        if "1" in completions: raise ValueError("odd")
        if "2" in completions: os._exit(2)
        if "3" in completions: time.sleep(100)
        return [math(text) for text in completions]
    def math(text): return float("nan") if text == "4" else float(text)
    """
    found = code.verdicts(text, rows=6, limits={"row_seconds": 0.4})
    assert [v[1] for v in found] == ["ok", "error", "error", "timeout", "invalid", "ok"]
    assert found[5][0] == 5.0
    assert math.isclose(found[0][0], 0.0)


def test_memory_of_a_function_that_catches_the_error(code):
    body = "try: held = b'x' * 10**9; time.sleep(5)\n        except MemoryError: return [0.0 for _ in completions]"
    text, failed = on_row_1(body), (None, "error", "used more than 400 MB")
    assert code.verdicts(text, limits={"memory_mb": 400}) != [OK[0], failed, OK[1]]
    said = text + "f.catches_memory_error = True\n"
    assert code.verdicts(said, limits={"memory_mb": 400}) == [OK[0], failed, OK[1]]
