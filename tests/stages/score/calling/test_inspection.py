"""What is told of functions before anything is sampled."""

import time
from pathlib import Path

import pytest
import yaml

from stages.common.params import ParamsError
from stages.common.params_file import parse_params
from stages.score.calling import resident
from stages.score.rewards import check_functions
from tests.workspace import ROOT

COLUMNS = {"prompts", "completions", "completion_ids", "finish_reason", "length", "prompt_id", "sample", "iteration"}
COLUMNS |= {"split", "prompt_tail", "subject"}
TAKES_ALL = "def f(completions, **columns): return [1.0] * len(completions)\n"


def params(function="rewards.py:f", reward=None, **sections):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    limits = {"start_seconds": 0.5}
    raw["score"]["rewards"] = {"one": {"function": function, "limits": limits} | (reward or {})}
    raw["evaluate"]["parts"] = None
    for name, section in sections.items():
        raw[name] = raw[name] | section if isinstance(raw.get(name), dict) else section
    return parse_params(raw, "params.yaml")


def told(code, text, columns=COLUMNS, **options):
    code.write(text)
    with pytest.raises(ParamsError) as error:
        check_functions(params(**options), columns)
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import time; time.sleep(100)", "took more than 0.5 s while it was imported"),
        ("import sys; print('x' * 10**6); sys.exit(3)", "had a process that ended with exit status 3"),
        ("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("def g(**columns): ...", "module 'rewards' has no attribute 'f'"),
        ("f = 3", "f is not a function"),
        ("def f(:", "SyntaxError"),
        ("def f(completions, answer, **columns): ...", "needs answer: neither a column nor one of its arguments."),
        ("def f(completions, trainer_state, **columns): ...", "needs trainer_state: neither a column"),
        ("def f(prompts, completions): ...", "takes neither **columns nor completion_ids, finish_reason"),
        (TAKES_ALL + "f.rows_per_call = 'many'", "its attribute rows_per_call is 'many'"),
    ],
)
def test_what_is_wrong_with_a_function(code, text, reason):
    message = told(code, text)
    assert message.startswith("params.yaml: score.rewards.one.function = 'rewards.py:f'")
    assert reason in message


def test_the_columns_there_are_are_listed(code):
    message = told(code, "def f(completions, answer, **columns): ...")
    assert ", ".join(sorted(COLUMNS)) in message


def test_a_missing_file_is_named(code):
    with pytest.raises(ParamsError, match=r"score\.rewards\.one\.function = 'nowhere\.py:f': nowhere\.py: no"):
        check_functions(params("nowhere.py:f"), COLUMNS)


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ("def f(completions, n=1): ...", {"colour": 1}, "rewards.py:f takes no colour; it takes completions, n"),
        (TAKES_ALL, {"subject": 1}, "['subject'] are columns that the function receives anyway"),
        (TAKES_ALL + "def check(n): raise ValueError('n has to be odd')\nf.check = check", {"n": 2}, "n has to be odd"),
        (TAKES_ALL + "def check(n): ...\nf.check = check", {}, "missing 1 required positional argument: 'n'"),
        (TAKES_ALL + "def check(): raise OSError('no key')\nf.check = check", {}, "OSError: no key"),
        (TAKES_ALL + "import time\nf.check = lambda: time.sleep(100)", {}, "more than 0.5 s"),
    ],
)
def test_what_is_wrong_with_arguments(code, text, arguments, reason):
    message = told(code, text, reward={"arguments": arguments})
    assert message.startswith("params.yaml: score.rewards.one.arguments: ")
    assert reason in message


def test_what_a_function_needs_may_be_an_argument_or_have_a_default(code):
    code.write("def f(completions, answer, other=2, **columns): ...")
    check_functions(params(reward={"arguments": {"answer": 4}}), COLUMNS)


def test_before_there_are_prompts_columns_are_not_asked_for(code):
    code.write("def f(completions, answer, **columns): ...")
    check_functions(params())
    with pytest.raises(ParamsError, match="needs answer"):
        check_functions(params(), COLUMNS)


NEEDS = "def f(completions, column='answer', **columns): return [1.0]\n"


@pytest.mark.parametrize("needs", ["{'answer', 'subject'}", "lambda column='answer': {column, 'subject'}"])
def test_columns_that_a_function_says_it_needs_are_looked_for(code, needs):
    message = told(code, NEEDS + f"f.needs = {needs}")
    assert message.startswith("params.yaml: score.rewards.one.function = 'rewards.py:f' needs answer: neither a column")
    assert f"Columns are {', '.join(sorted(COLUMNS))}; name a column of the prompts so" in message
    check_functions(params(), COLUMNS | {"answer"})
    check_functions(params())


def test_what_is_needed_depends_on_the_arguments(code):
    code.write(NEEDS + "f.needs = lambda column='answer': {column}")
    check_functions(params(reward={"arguments": {"column": "subject"}}), COLUMNS)
    with pytest.raises(ParamsError, match="needs solution: neither a column"):
        check_functions(params(reward={"arguments": {"column": "solution"}}), COLUMNS)


@pytest.mark.parametrize("needs", ["'answer'", "lambda column='answer': [3]", "None"])
def test_needs_that_are_no_names_are_refused(code, needs):
    message = told(code, NEEDS + f"f.needs = {needs}")
    assert "params.yaml: score.rewards.one.function = 'rewards.py:f': its attribute needs gives" in message


@pytest.mark.parametrize("name", ["score.rewards.one.function", "evaluate.parts"])
def test_the_embedded_task_needs_its_columns(code, name):
    code.write(TAKES_ALL)
    spec = f"stages.score.constraints:{'parts' if name == 'evaluate.parts' else 'reward'}"
    given = params(evaluate={"parts": spec}) if name == "evaluate.parts" else params(spec)
    with pytest.raises(ParamsError) as error:
        check_functions(given, COLUMNS - {"subject"})
    assert f"{name} = {spec!r} needs constraints, subject: neither a column" in str(error.value)
    assert ("set evaluate.parts to null" in str(error.value)) == (name == "evaluate.parts")


SECONDS = NEEDS + "f.needs_seconds = lambda most=3: {'row': most, 'batch': 2 * most}\n"


def test_limits_below_what_a_function_needs_are_refused(code):
    limits = {"start_seconds": 5, "row_seconds": 2, "batch_seconds": 7}
    message = told(code, SECONDS, reward={"limits": limits})
    assert message.startswith("params.yaml: score.rewards.one.limits = {'row_seconds': 2.0} is less than rewards.py:f")
    assert "set score.rewards.one.limits: {row_seconds: 3} or more" in message
    message = told(code, SECONDS, reward={"limits": limits, "arguments": {"most": 4}})
    assert "set score.rewards.one.limits: {row_seconds: 4, batch_seconds: 8} or more" in message
    check_functions(params(reward={"limits": limits, "arguments": {"most": 2}}), COLUMNS)
    rows = {"limits": limits | {"row_seconds": 4}, "arguments": {"most": 4}}
    check_functions(params(reward=rows | {"rows_per_call": 1}), COLUMNS)
    with pytest.raises(ParamsError, match="batch_seconds: 8} or more"):
        check_functions(params(reward=rows), COLUMNS)


@pytest.mark.parametrize("seconds", ["{'call': 1}", "3", "{'row': 'long'}", "{'row': float('nan')}"])
def test_needed_seconds_that_are_none_are_refused(code, seconds):
    message = told(code, NEEDS + f"f.needs_seconds = lambda: {seconds}")
    assert "'rewards.py:f': its attribute needs_seconds gives" in message


BAD = {"function": "rewards.py:bad"}
SECTIONS = {
    "evaluate.rewards.gold.function": {"evaluate": {"rewards": {"gold": BAD}}},
    "evaluate.parts": {"evaluate": {"parts": "rewards.py:bad"}},
    "judge.function": {"judge": BAD},
    "sft.best_of.gold": {
        "sft": {"best_of": {"prompts": 2, "samples": 2, "gold": "rewards.py:bad"}, "learning_rate": 0.1}
    },
    "reward_models.rm.preferences.sampled.gold": {
        "reward_models": {"rm": {"preferences": {"sampled": {"prompts": 4, "gold": "rewards.py:bad"}}}}
    },
}


@pytest.mark.parametrize("option", SECTIONS)
def test_functions_are_looked_at_wherever_they_are_named(code, option):
    message = told(code, TAKES_ALL, **SECTIONS[option])
    assert message.startswith(f"params.yaml: {option} = 'rewards.py:bad': AttributeError")


def test_the_first_in_the_order_of_params_is_told(code):
    code.write("import time\ndef one(answer, **c): ...\ndef two(missing, **c): ...")
    rewards = {name: {"function": f"rewards.py:{name}"} for name in ("two", "one")}
    with pytest.raises(ParamsError, match=r"score\.rewards\.two\.function"):
        check_functions(params(score={"rewards": rewards}), COLUMNS)


def test_nothing_is_imported_twice_within_a_run(code):
    code.write("open('imports', 'a').write('x')\n" + TAKES_ALL)
    for _ in range(3):
        check_functions(params(), COLUMNS)
        resident.close_all()
    assert Path("imports").read_text() == "x"
    code.write("open('imports', 'a').write('y')\n" + TAKES_ALL)
    check_functions(params(), COLUMNS)
    assert Path("imports").read_text() == "xy"


def test_what_was_found_long_ago_is_looked_at_again(code, monkeypatch):
    code.write("open('imports', 'a').write('x')\n" + TAKES_ALL)
    check_functions(params(), COLUMNS)
    resident.close_all()
    monkeypatch.setattr("stages.score.calling.inspection.FRESH_SECONDS", 0.05)
    time.sleep(0.1)
    check_functions(params(), COLUMNS)
    assert Path("imports").read_text() == "xx"


def test_its_own_check_is_made_each_time_as_it_may_ask_for_more_than_code(code):
    code.write(TAKES_ALL + "def check(): open('checks', 'a').write('x')\nf.check = check")
    for _ in range(2):
        check_functions(params(), COLUMNS)
    assert Path("checks").read_text() == "xx"


@pytest.mark.parametrize(("own", "params_say", "calls"), [(2, None, "221"), (None, None, "5"), (2, 3, "32")])
def test_rows_per_call_are_those_of_params_else_the_functions_own(code, own, params_say, calls):
    text = "def f(completions, **c):\n    open('calls', 'a').write(str(len(completions)))\n"
    text += "    return [1.0] * len(completions)"
    code.score(text + (f"\nf.rows_per_call = {own}" if own else ""), rows=5, rows_per_call=params_say)
    assert Path("calls").read_text() == calls
