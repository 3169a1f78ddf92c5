"""A function that is wrong as a whole is an error that says how, whatever the number of rows."""

import pytest

from stages.common.params import Reward
from stages.score.calling.function import of_reward
from stages.score.calling.inspection import of_option
from stages.score.calling.rows import call_rows
from stages.score.calling.session import session
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


SLOW = "import time\ndef f(completions, **c):\n    if '1' in completions: time.sleep(100)\n"
SLOW += "    return [1.0] * len(completions)"
FAT = "def f(completions, **c):\n    if '1' in completions: bytearray(1 << 40)\n    return [1.0] * len(completions)"


@pytest.mark.parametrize(("text", "option"), [(SLOW, "row_seconds"), (FAT, "memory_mb")])
def test_limits_that_were_too_low_are_named_by_their_options(code, text, option):
    limits = {"batch_seconds": 0.3, "row_seconds": 0.3}
    with pytest.raises(RewardError, match=rf"its limits \(score\.rewards\.one\.limits\.{option}\), or raise"):
        code.score(text, limits=limits, max_failed=0.1)
    everywhere = text.replace("if '1' in completions: ", "")
    if option == "memory_mb":
        with pytest.raises(RewardError, match=r"more than 4096 MB \(score\.rewards\.one\.limits\.memory_mb\), and"):
            code.score(everywhere, limits=limits)


def test_a_function_that_says_of_all_rows_that_they_are_lost(code):
    text = "from stages.score.outcome import Unscorable\ndef f(completions, **c):\n"
    text += "    return [Unscorable('no server', passing=True)] * len(completions)"
    with pytest.raises(RewardError, match="said of its rows: no server, and failed on all 3 rows"):
        code.score(text)


@pytest.mark.parametrize("body", ["return [object()] * 3", "raise ValueError(object())", "return object()"])
def test_messages_hold_no_addresses(code, body):
    text = f"def f(completions, **c): {body}"
    try:
        told = str(code.verdicts(text)[0][2])
    except RewardError as error:
        told = str(error)
    assert "<object object>" in told


def own_limits(arguments=None):
    """As `evaluate.parts` and its like have them."""
    reward = Reward(function="rewards.py:f", arguments=arguments or {})
    return of_option("gold", reward, "sft.best_of", "gold")


def test_a_call_without_options_has_the_time_of_its_rows(code):
    function = own_limits()
    assert [function.seconds_for(rows) for rows in (1, 2, 6, 50, 10_000)] == [10, 60, 60, 500, 3600]
    assert of_reward("one", code.reward()).seconds_for(50) == 5.0


def test_a_call_without_options_has_the_time_that_it_needs(code):
    code.write("def f(completions, **c): return [1.0]\nf.needs_seconds = lambda most=0: {'row': most, 'batch': 1}")
    with session(own_limits({"most": 77})) as one:
        assert (one.seconds_for(1), one.seconds_for(9)) == (77.0, 90.0)


def test_rows_per_call_of_a_function_without_options_are_its_own(code):
    code.write("def f(completions, **c): return [len(completions)] * len(completions)\nf.rows_per_call = 2")
    assert [row[0] for row in call_rows(own_limits(), {"completions": ["a"] * 5})] == [2, 2, 2, 2, 1]


def test_a_limit_without_an_option_is_said_to_be_fixed(code):
    code.write("def f(completions, **c): bytearray(1 << 40)")
    with pytest.raises(RewardError, match=r"\(memory_mb, which is fixed for sft\.best_of\.gold\)"):
        call_rows(own_limits(), {"completions": ["a"] * 2})
