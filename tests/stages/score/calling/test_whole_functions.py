"""A function that is wrong as a whole is an error that says how, whatever the number of rows."""

import pytest

from stages.score.rewards import RewardError

WRONG_LENGTH = "it has to return one for each, in order"
NO_LIST = "not a list; it has to return one value for each completion, in order"


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("[1.0] * (len(completions) + 1)", "returned {more} values for {rows} completions; " + WRONG_LENGTH),
        ("[]", "returned 0 values for {rows} completions; " + WRONG_LENGTH),
        ("iter([1.0] * 9)", "returned more than {rows} values for {rows} completions"),
        ("__import__('itertools').count()", "returned more than {rows} values for {rows} completions"),
        ("(x for x in [])", "returned 0 values for {rows} completions"),
        ("None", "returned None, " + NO_LIST),
        ("1.0", "returned a float (1.0), " + NO_LIST),
        ("{c: 1.0 for c in completions}", "returned a dict ("),
        ("set(completions)", "returned a set ("),
        ("'1' * len(completions)", "returned a str ("),
        ("b'1' * len(completions)", "returned a bytes ("),
        ("__import__('numpy').float32(1)", "returned a float32 ("),
        ("__import__('numpy').array(1)", "returned a ndarray ("),
    ],
)
def test_a_result_of_the_wrong_shape_is_told_at_once(code, returned, told, rows):
    with pytest.raises(RewardError) as error:
        code.score(f"def f(completions, **c): return {returned}", rows=rows)
    expected = "score.rewards.one.function = 'rewards.py:f' " + told.format(rows=rows, more=rows + 1)
    assert str(error.value).startswith(expected)


def test_a_wrong_length_of_one_call_is_not_hidden_by_calls_row_by_row(code):
    """Called one by one it would return the right number."""
    with pytest.raises(RewardError, match="returned 1 values for 3 completions"):
        code.score("def f(completions, **c): return [1.0]")


def test_a_wrong_length_of_a_row_after_a_call_that_raised_is_told(code):
    text = "def f(completions, **c):\n    if len(completions) > 1: raise ValueError('odd')\n    return []"
    with pytest.raises(RewardError, match="returned 0 values for 1 completions"):
        code.score(text)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ZeroDivisionError('no rows')", "raised ZeroDivisionError: no rows"),
        ("__import__('os')._exit(3)", "had a process that ended with exit status 3"),
    ],
)
def test_failing_on_every_row_is_an_error_with_the_first_reason_the_row_and_the_log(code, body, told):
    with pytest.raises(RewardError) as error:
        code.score(f"def f(completions, **c): {body}")
    assert f"'rewards.py:f' {told}, and failed on all 3 rows; the first is prompt_id p0, sample 0" in str(error.value)
    assert "data/logs/rewards/one.log" in str(error.value)


def test_failing_on_the_only_row_is_that_rows_error(code):
    found = code.verdicts("def f(completions, **c): raise ZeroDivisionError('no rows')", rows=1)
    assert found == [(None, "error", "ZeroDivisionError: no rows")]


def test_a_bug_in_every_call_is_not_mistaken_for_one_row(code):
    with pytest.raises(RewardError, match="raised IndexError"):
        code.score("def f(completions, **c): return [completions[5]]")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("def g(): ...", "module 'rewards' has no attribute 'f'"),
        ("f = 3", "f is not a function"),
        ("import sys; sys.exit(5)", "had a process that ended with exit status 5 while it was imported"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL while it was imported"),
        ("import time; time.sleep(100)", "took more than 0.5 s while it was imported"),
        ("held = bytearray(1 << 40)", "MemoryError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(completions, /, **c): ...", "it takes completions by position only"),
        ("def f(completions, **c): ...\nf.rows_per_call = 0", "rows_per_call is 0; it has to be a number of rows"),
    ],
)
def test_a_function_that_cannot_be_had(code, text, told):
    with pytest.raises(RewardError) as error:
        code.score(text, limits={"start_seconds": 0.5})
    assert str(error.value).startswith("params.yaml: score.rewards.one.function = 'rewards.py:f'")
    assert told in str(error.value)


def test_a_function_that_does_not_take_every_column(code):
    with pytest.raises(RewardError, match=r"unexpected keyword argument 'sample'.*add \*\*columns"):
        code.score("def f(completions, prompt_id): return [1.0] * len(completions)")


def test_a_function_that_needs_what_is_not_there(code):
    with pytest.raises(RewardError, match=r"needs trainer_state, neither .*; there are completions, prompt_id"):
        code.score("def f(completions, trainer_state, **c): return [1.0] * len(completions)")


def test_no_rows_no_call(code):
    frame = code.score("1 / 0", rows=0)
    assert frame.height == 0
    assert frame.columns == ["reward/one", "status/one", "message/one", "task_reward"]


HALF = "import math\ndef f(completions, **c): return [math.nan if int(x) % 2 else 1.0 for x in completions]"


def test_too_many_failed_rows_stop_the_stage(code):
    assert code.score(HALF, rows=4, max_failed=0.5)["status/one"].to_list() == ["ok", "invalid", "ok", "invalid"]
    with pytest.raises(RewardError) as error:
        code.score(HALF, rows=4, max_failed=0.49)
    message = str(error.value)
    assert "2 of 4 rows could not be scored (2 invalid), more than score.max_failed = 0.49 allows" in message
    assert "the first is prompt_id p1, sample 0: not finite: nan" in message
    assert "data/logs/rewards/one.log" in message


def test_rows_that_a_function_does_not_apply_to_have_not_failed(code):
    assert code.score("def f(completions, **c): return [None] * 3", max_failed=0.0)["reward/one"].null_count() == 3


def test_hanging_rows_stop_the_stage_as_soon_as_they_are_too_many(code):
    text = "import time\ndef f(completions, **c): time.sleep(100)"
    limits = {"batch_seconds": 0.2, "row_seconds": 0.2}
    with pytest.raises(RewardError, match=r"2 of 10 rows could not be scored after the first 2 \(2 timeout\)"):
        code.score(text, rows=10, limits=limits, max_failed=0.1)


def test_counts_are_by_status(code):
    text = """
    import os, time
    def f(completions, **c):
        if "0" in completions: time.sleep(100)
        if "1" in completions: return [float("nan")]
        if "2" in completions: raise ValueError("odd")
        return [1.0] * len(completions)
    """
    with pytest.raises(RewardError, match=r"3 of 6 rows could not be scored \(1 invalid, 1 timeout, 1 error\)"):
        code.score(text, rows=6, max_failed=0.4, limits={"batch_seconds": 0.3, "row_seconds": 0.3})
