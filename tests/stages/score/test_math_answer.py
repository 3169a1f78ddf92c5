"""Mathematical equality: a table by hand, the order of the two sides, and inputs that hang a parser."""

import json
import subprocess
import sys
import threading
import time

import pytest

from stages.score.math_answer import check, math_answer
from stages.score.outcome import Unscorable

BOX = r"so \boxed{%s}."


def one(gold, answer, **arguments):
    (reward,) = math_answer([answer], answer=[gold], **arguments)
    return reward


@pytest.mark.parametrize(
    ("gold", "answer", "reward"),
    [
        ("5", "5", 1.0),
        ("-3", "3", 0.0),
        ("-3", "$-3$", 1.0),
        ("1,234", "1234", 1.0),
        ("1234", BOX % "1,234", 1.0),
        ("1,000,000", BOX % "10^6", 1.0),
        (r"\frac{1}{2}", "0.5", 1.0),
        (r"\frac12", BOX % r"\dfrac{2}{4}", 1.0),
        ("1 1/2", "1.5", 1.0),
        ("1 1/2", "1", 0.0),  # math-verify alone reads 1
        ("5e3", "5000", 1.0),
        ("5e3", "5", 0.0),  # and here 5
        ("1/3", "0.333333", 0.0),
        ("50%", "0.5", 1.0),
        ("0.5", BOX % r"50\%", 1.0),
        ("50", BOX % r"50\%", 1.0),
        (r"50\%", "0.005", 0.0),
        (r"\{1,2\}", BOX % r"\{2,1\}", 1.0),
        (r"\{1,2\}", BOX % r"\{1,3\}", 0.0),
        ("[1,2)", BOX % "[1,2)", 1.0),
        ("[1,2)", BOX % "[1,2]", 0.0),
        (r"(-\infty,3]", r"$(-\infty, 3]$", 1.0),
        ("(3,4)", BOX % "(4,3)", 0.0),
        ("x<3", "$x<3$", 1.0),
        ("x<3", "$x>3$", 0.0),
        ("3", BOX % r"3\text{ cm}", 1.0),
        (r"3\text{ cm}", "3", 1.0),
        ("72 clips", "72", 1.0),
        ("10", "So the answer is 10.", 1.0),
        ("10", "the answer is $10$, not 12.", 1.0),
        ("10", r"first 12, then \boxed{10}, for 7 people", 1.0),
        (r"\sqrt{2}/2", r"$\frac{1}{\sqrt{2}}$", 1.0),
        ("x^2+2x+1", BOX % "(x+1)^2", 1.0),
        ("5x", "5", 0.0),
        ("x=5", "5", 1.0),
        ("5", "x=5", 1.0),
        (r"\text{blue}", BOX % r"\text{blue}", 1.0),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"$\begin{pmatrix}1\\2\end{pmatrix}$", 1.0),
        (["5", "6"], "6", 1.0),
        ("5", "blah", 0.0),
        ("5", r"\boxed{\frac{1}{2}", 0.0),
    ],
)
def test_by_hand(gold, answer, reward):
    assert one(gold, answer) == reward


@pytest.mark.parametrize(
    ("gold", "answer", "reward", "swapped"),
    [("5", BOX % "3+2=5", 1.0, 0.0), ("1<x<2", BOX % "(1,2)", 1.0, 0.0), ("(1,2)", BOX % "1<x<2", 0.0, 1.0)],
)
def test_gold_and_answer_are_never_swapped(gold, answer, reward, swapped):
    import math_verify

    assert one(gold, answer) == reward
    first, second = math_verify.parse(f"${gold}$"), math_verify.parse(answer)
    assert (math_verify.verify(first, second), math_verify.verify(second, first)) == (bool(reward), bool(swapped))


@pytest.mark.parametrize("gold", ["blue", "5 or 6", "???", r"\frac{1}{2", "", None])
def test_a_golden_answer_that_cannot_be_read_makes_its_row_unscorable(gold):
    assert isinstance(one(gold, "5"), Unscorable)
    assert isinstance(one(gold, "", missing_reward=-1.0), Unscorable)
    assert math_answer(["5", "5"], answer=[gold, "5"])[1] == 1.0


def test_extraction_and_nothing_to_extract():
    assert one("5", "<answer>5</answer>", extract={"tag": "answer"}) == 1.0
    assert one("5", "5", extract={"tag": "answer"}) == 0.0
    assert one("5", "5", extract="boxed", missing_reward=-0.5) == -0.5
    assert one("a\n#### 1,234", "1234", gold_extract={"after": "####"}) == 1.0


TOWERS = [
    r"9^{9^{9^{9}}}",
    "9^" * 30 + "9",
    "(" * 300 + "1" + ")" * 300,
    r"\frac{1}{" * 60 + "2" + "}" * 60,
    "10^{10}!!!",
]


@pytest.mark.parametrize("formula", TOWERS)
def test_what_hangs_a_parser_costs_its_limit_and_is_not_wrong_but_unscorable(formula):
    """In a process that is killed by a limit, as in a run."""
    script = (
        "import json, sys; from stages.score.math_answer import math_answer\n"
        "from stages.score.outcome import Unscorable\n"
        "(r,) = math_answer([sys.argv[1]], answer=['5'], seconds=1)\n"
        "print(json.dumps([isinstance(r, Unscorable), str(r)]))"
    )
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, rf"\boxed{{{formula}}}"], capture_output=True, text=True, timeout=40, check=True
    )
    assert time.monotonic() - start < 20
    unscorable, said = json.loads(done.stdout)
    assert (unscorable and "longer than 1 s" in said) or said == "0.0"
    assert unscorable or formula == TOWERS[-1]


def test_a_time_out_depends_on_the_machine_and_is_not_kept(monkeypatch):
    import math_verify

    def late(*_, **__):
        raise math_verify.errors.TimeoutException

    for name in ("parse", "verify"):
        with monkeypatch.context() as patched:
            patched.setattr(math_verify, name, late)
            found = one(r"\frac{1}{2}x", r"$\frac{x}{2}$")
        assert isinstance(found, Unscorable)
        assert found.passing


@pytest.mark.parametrize("name", ["parse", "verify"])
def test_no_memory_is_no_wrong_answer(name, monkeypatch):
    import math_verify

    def fails(error):
        def raises(*_, **__):
            raise error

        return raises

    monkeypatch.setattr(math_verify, name, fails(MemoryError()))
    with pytest.raises(MemoryError):
        one("2", "$x$")
    monkeypatch.setattr(math_verify, name, fails(RecursionError()))
    for gold in ("2", "$y$"):
        found = one(gold, "$x$")
        assert isinstance(found, Unscorable)
        assert not found.passing
        assert "too deeply" in found.reason


def test_outside_the_main_thread_it_says_so():
    told = []

    def call():
        try:
            one("5", "5")
        except RuntimeError as error:
            told.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "main thread" in told[0]


@pytest.mark.parametrize("arguments", [{"seconds": 0}, {"seconds": 1.5}, {"extract": "x"}, {"column": 1}])
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match=f"math_answer: {next(iter(arguments))}"):
        check(**arguments)


def test_rows_are_called_one_by_one():
    assert math_answer.rows_per_call == 1
