"""Unit tests of generated Python code, run in locked-down processes of their own.

    tests:
      function: stages.score.python_tests:passes_tests
      arguments: {column: tests, reward: fraction, seconds: 2}

The code is in the last ```python fence of the completion (`extract: fence`), or where another rule of
stages/score/extract.py finds it. The column `tests` holds

    a text of statements     `assert` statements at its end are one test each, and what is before them is part of each;
                             any other text is one test
    a list of such texts     each is one test
    a list of {input, output}  the code is a program that reads the input and has to print the output; blanks at
                             the ends of lines and of the whole do not count

`reward` is the fraction of tests passed, or `all`: 1 if all are, else 0. Each test runs the code anew. A test that
takes longer than `seconds` is not passed, and neither are those after it: code that hangs costs one time limit.

    a test that does not compile, or ends its own process    row unscorable
    a test that imports what its process does not have       row unscorable (stages/score/imports_of_tests.py)
    no tests in the row                                      row unscorable
    code that does not compile, raises, exits, hangs         the test is not passed
    no code in the completion                                missing_reward
    no process could be had                                  the call raises

Each process may read Python's own library and nothing else, write in an empty folder, use `memory_mb`, and neither
connect to anything nor start another process; stages/score/lockdown.py says how, and what it cannot prevent. A machine
without Landlock and seccomp is refused, unless `unlocked: true` says that generated code may do there what you may do.
`packages` lets code and tests import the installed packages.

The verdict comes from a process in which no generated code runs (stages/score/sandbox.py). What this does not prevent:
code that decides by its arguments alone (a table of the answers it has seen in training), objects of its own that claim
to be equal to each other where a test compares two of them, and aliases of modules that a test takes from the code
instead of importing them. numpy arrays and other objects stay in the code's process; a test may use them only through
their attributes and methods.
"""

from collections.abc import Sequence
from typing import Any

from stages.score.columns import Scored, check_missing_reward, column_of, tails_of
from stages.score.extract import check_rule, extracted
from stages.score.imports_of_tests import not_importable
from stages.score.outcome import Unscorable
from stages.score.sandbox import Jail, output_of, passes_test, problem
from stages.score.texts import text_of
from stages.score.unit_tests import Test, tests_of

FENCE = "fence"
LANGUAGES = ("python", "py", "python3")


def check(
    column: str = "tests",
    extract: Any = FENCE,
    reward: str = "fraction",
    seconds: float = 2.0,
    memory_mb: int = 512,
    missing_reward: float = 0.0,
    packages: bool = False,
    unlocked: bool = False,
) -> None:
    """Refuse wrong arguments, and a machine that has no lock, before anything is sampled."""
    if extract != FENCE:
        check_rule(extract, "passes_tests: extract")
    check_missing_reward(missing_reward, "passes_tests")
    if reward not in ("fraction", "all"):
        raise ValueError(f"passes_tests: reward is fraction or all, not {reward!r}")
    for name, value, least in (("seconds", seconds, 0.1), ("memory_mb", memory_mb, 64)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < 1e6:
            raise ValueError(f"passes_tests: {name} ({value!r}) has to be a number of at least {least}")
    for name, switch in (("packages", packages), ("unlocked", unlocked)):
        if not isinstance(switch, bool):
            raise ValueError(f"passes_tests: {name} is true or false, not {switch!r}")
    if not isinstance(column, str):
        raise ValueError(f"passes_tests: column is the name of one column, not {column!r}")
    reason = None if unlocked else problem()
    if reason is not None:
        raise ValueError(
            f"passes_tests: {reason}. Generated code could read, delete and send what you can; `unlocked: true` runs "
            "it all the same, which is for containers that hold nothing of value"
        )


def passes_tests(
    completions: Sequence[Any],
    column: str = "tests",
    extract: Any = FENCE,
    reward: str = "fraction",
    seconds: float = 2.0,
    memory_mb: int = 512,
    missing_reward: float = 0.0,
    packages: bool = False,
    unlocked: bool = False,
    **columns: Any,
) -> Scored:
    """One reward in [0, 1] per completion; a SandboxError if no process for generated code can be had."""
    jail = Jail(float(seconds), int(memory_mb), packages, unlocked)
    rewards: Scored = []
    given = column_of(columns, column, "passes_tests")
    for completion, value, tail in zip(completions, given, tails_of(columns, len(completions)), strict=True):
        tests = tests_of(value)
        text = text_of(completion)
        code = last_fence(tail + text) if extract == FENCE else extracted(text, extract, tail)
        if not isinstance(tests, Unscorable):
            tests = not_importable([test for test in tests if isinstance(test, str)], jail) or tests
        if isinstance(tests, Unscorable):
            rewards.append(tests)
        elif code is None:
            rewards.append(missing_reward)
        else:
            rewards.append(judged(code, tests, jail, reward == "all"))
    return rewards


def judged(code: str, tests: list[Test], jail: Jail, all_or_nothing: bool) -> float | Unscorable:
    passed = 0
    for test in tests:
        outcome = passes_test(code, test, jail) if isinstance(test, str) else prints(code, *test, jail)
        if outcome == "ended":
            return Unscorable(f"the test {str(test)[:80]!r} ends its own process")
        passed += outcome == "passed"
        if outcome == "timeout" or (all_or_nothing and outcome != "passed"):
            break
    return float(passed == len(tests)) if all_or_nothing else passed / len(tests)


def prints(code: str, given: str, expected: str, jail: Jail) -> str:
    """How a program with this input came out."""
    printed, outcome = output_of(code, given, jail)
    return "failed" if outcome == "passed" and _lines(printed) != _lines(expected) else outcome


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def last_fence(text: str) -> str | None:
    """The code of the last fence marked as Python, else of the last without a mark; to the end if it is open."""
    fences: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
            if inside:
                fences.append((line.strip().strip("`").strip().lower(), []))
        elif inside:
            fences[-1][1].append(line)
    for marks in (LANGUAGES, ("",)):
        found = [lines for mark, lines in fences if mark in marks]
        if found:
            return "\n".join(found[-1]) + "\n"
    return None


def needs(column: str = "tests", **others: Any) -> set[str]:
    """The column with the tests."""
    return {column}


def needs_seconds(seconds: float = 2.0, **others: Any) -> dict[str, float]:
    """What `limits` have to leave at least: for a test that runs out of time, and starting processes. Each further test
    takes about 0.1 s more.
    """
    return {"row": seconds + 1.0, "batch": seconds + 1.0}


passes_tests.needs = needs  # type: ignore[attr-defined]
passes_tests.needs_seconds = needs_seconds  # type: ignore[attr-defined]
passes_tests.check = check  # type: ignore[attr-defined]
passes_tests.rows_per_call = 1  # type: ignore[attr-defined]
