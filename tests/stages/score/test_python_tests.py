"""Unit tests of generated code: what counts as passed, and code that wants to pass without being right."""

import ast
import math
import os
import re

import pytest

from stages.score import python_tests, sandbox
from stages.score.outcome import Unscorable
from stages.score.python_tests import check, last_fence, passes_tests
from stages.score.sandbox import Jail, SandboxError, passes_test
from stages.score.unit_tests import split
from stages.score.untrusted import names_of

JAIL = Jail(seconds=5.0, memory_mb=512)
needs_lock = pytest.mark.skipif(sandbox.problem() is not None, reason="this machine has no lock")


def fenced(code):
    return f"Here it is.\n\n```python\n{code}\n```\nDone."


def reward(code, tests, **arguments):
    (one,) = passes_tests([fenced(code)], tests=[tests], **arguments)
    return one


ADD = "def add(a, b):\n    return a + b"


@needs_lock
@pytest.mark.parametrize(
    ("code", "tests", "fraction", "everything"),
    [
        (ADD, "assert add(1, 2) == 3", 1.0, 1.0),
        (ADD, "assert add(1, 2) == 3\nassert add(1, 1) == 3", 0.5, 0.0),
        (ADD, ["assert add(1, 2) == 3", "assert add(1, 1) == 2", "assert add(0, 1) == 2"], 2 / 3, 0.0),
        (ADD, "x = 3\nassert add(1, 2) == x\nassert add(2, 1) == x", 1.0, 1.0),
        (ADD, "def check(f):\n    assert f(1, 2) == 3\n    assert f(1, 1) == 3\ncheck(add)", 0.0, 0.0),
        (ADD, "import math\nassert math.isclose(add(0.1, 0.2), 0.3)", 1.0, 1.0),
        ("def f(: pass", "assert f() == 1", 0.0, 0.0),
        ("raise ValueError", "assert add(1, 2) == 3", 0.0, 0.0),
        ("x = 1", "assert add(1, 2) == 3", 0.0, 0.0),
        ("print(int(input()) + 1)", [{"input": "1\n", "output": "2"}, {"input": "2\n", "output": "2"}], 0.5, 0.0),
        (
            "import sys\nfor line in sys.stdin: print(line.strip(), '')",
            [{"input": "a\nb\n", "output": "a\nb\n\n"}],
            1.0,
            1.0,
        ),
        ("print(2)\nraise SystemExit(1)", [{"input": "", "output": "2"}], 0.0, 0.0),
    ],
)
def test_by_hand(code, tests, fraction, everything):
    assert reward(code, tests) == pytest.approx(fraction)
    assert reward(code, tests, reward="all") == everything


@needs_lock
@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("def f(x):\n    x.sort()", "a = [3, 1, 2]\nf(a)\nassert a == [1, 2, 3]"),
        ("def f(d):\n    d['k'].append(1)", "d = {'k': []}\nf(d)\nassert d == {'k': [1]}"),
        ("from collections import Counter\ndef f(s): return Counter(s)", "assert f('aab') == {'a': 2, 'b': 1}"),
        (
            "def f(): return {1, 2}, (1, [2.5]), 'x', b'y', None, 1j, range(3)",
            "assert f() == ({1, 2}, (1, [2.5]), 'x', b'y', None, 1j, range(3))",
        ),
        ("def f(): return 10 ** 5000", "assert f() == 10 ** 5000"),
        (
            "from fractions import Fraction\ndef f(): return Fraction(1, 3)",
            "from fractions import Fraction\nassert f() == Fraction(1, 3)",
        ),
        (
            "def f(n):\n    yield from range(n)",
            "assert list(f(3)) == [0, 1, 2]\nassert 2 in f(3)\nassert 5 not in f(3)",
        ),
        ("def f(g, x): return g(g(x))", "assert f(lambda x: x * 2, 3) == 12"),
        ("def sum(a, b): return a + b", "assert sum(10, 15) == 25"),
        ("class S:\n    def two(self, a, b=0): return a + b", "assert S().two(1, b=2) == 3"),
        (
            "class V:\n    def __init__(self, x): self.x = x\n    def __add__(self, o): return V(self.x + o.x)\n"
            "    def __eq__(self, o): return self.x == o.x\n    def __mul__(self, k): return V(self.x * k)",
            "assert V(1) + V(2) == V(3)\nassert V(2) * 3 == V(6)\nassert (V(2) * 3).x == 6\nassert V(1) != V(2)\n"
            "assert isinstance(V(1), V)\nv = V(1)\nv.x = 5\nassert v.x == 5",
        ),
        (
            "class E(ValueError): pass\ndef f(x):\n    raise E('no') if x else KeyError('k')",
            "try:\n    f(1)\n    assert False\nexcept E as error:\n    assert str(error) == 'no'\n"
            "try:\n    f(0)\n    assert False\nexcept LookupError:\n    pass",
        ),
    ],
)
def test_right_code_passes_however_the_test_is_written(code, test):
    assert passes_test(code, test, JAIL) == "passed"


NUMBER = "assert f(2) == 4"
CHEATS = {
    "exits while it is loaded": ("import sys\nsys.exit(0)", NUMBER),
    "ends the process while it is loaded": ("import os\nos._exit(0)", NUMBER),
    "exits when called": ("import sys\ndef f(x): sys.exit(0)", NUMBER),
    "ends the process when called": ("import os\ndef f(x): os._exit(0)", NUMBER),
    "an int that equals everything": (
        "class I(int):\n    __eq__ = lambda s, o: True\n"
        "    __ne__ = lambda s, o: False\n    __hash__ = int.__hash__\n"
        "def f(x): return I(7)",
        NUMBER,
    ),
    "an object that equals everything": ("class A:\n    __eq__ = lambda s, o: True\ndef f(x): return A()", NUMBER),
    "equals everything, on the other side": (
        "class A:\n    __eq__ = lambda s, o: True\ndef f(x): return A()",
        "assert 4 == f(2)",
    ),
    "is nothing": (
        "class A:\n    __sub__ = __rsub__ = lambda s, o: 0\ndef f(x): return A()",
        "assert abs(f(2) - 4) < 1e-6",
    ),
    "is nothing in two steps": (
        "class A:\n    __sub__ = lambda s, o: s\n"
        "    __abs__ = __float__ = lambda s: 0.0\n    __lt__ = lambda s, o: True\n"
        "def f(x): return A()",
        "assert abs(f(2) - 4) < 1e-6",
    ),
    "is in order with everything": (
        "class A:\n    __lt__ = __gt__ = lambda s, o: True\ndef f(x): return A()",
        "assert 3 < f(2) < 5",
    ),
    "holds everything": (
        "class A:\n    __contains__ = lambda s, o: True\n    __iter__ = lambda s: iter(())\ndef f(x): return A()",
        "assert 4 in f(2)",
    ),
    "its own abs": ("abs = lambda x: 0\ndef f(x): return 9", "assert abs(f(2) - 4) < 1e-6"),
    "its own math": ("class math:\n    isclose = lambda *a: True\ndef f(x): return 9", "assert math.isclose(f(2), 4)"),
    "patches builtins": (
        "import builtins\nbuiltins.AssertionError = None\nbuiltins.abs = lambda x: 0\ndef f(x): return 9",
        "assert abs(f(2) - 4) < 1e-6",
    ),
    "patches modules": (
        "import sys, math\nmath.isclose = lambda *a: True\nsys.modules['math'] = math\ndef f(x): return 9",
        "import math\nassert math.isclose(f(2), 4)",
    ),
    "patches the channel": (
        "import gc\nfor o in gc.get_objects():\n"
        "    if type(o).__name__ == 'Peer': type(o).pack = lambda s, v: True\n"
        "def f(x): return 9",
        NUMBER,
    ),
    "a fake verdict": (
        "import os\nfor fd in range(40):\n"
        '    try: os.write(fd, b\'{"outcome": "passed"}\\n\')\n'
        "    except OSError: pass\nos._exit(0)",
        NUMBER,
    ),
    "prints a marker": ("print('passed')\nprint('{\"outcome\": \"passed\"}')\ndef f(x): return 9", NUMBER),
    "looks for the expected value": (
        "import gc, sys\ndef f(x):\n"
        "    seen = [o for o in gc.get_objects() if isinstance(o, dict) and 'expected' in o]\n"
        "    frame = sys._getframe()\n    while frame:\n"
        "        if 'expected' in frame.f_locals: return frame.f_locals['expected']\n"
        "        frame = frame.f_back\n"
        "    return seen[0]['expected'] if seen else 9",
        "expected = 4\nassert f(2) == expected",
    ),
    "forks, and the child goes on": ("import os\nif os.fork(): os._exit(0)\ndef f(x): return 4", NUMBER),
    "traces": (
        "import sys\nsys.settrace(lambda *a: None)\nsys.addaudithook(lambda *a: None)\ndef f(x): return 9",
        NUMBER,
    ),
    "raises the error of a skipped test": ("import unittest\ndef f(x): raise unittest.SkipTest", NUMBER),
    "raises SystemExit at the test": ("def f(x): raise SystemExit(0)", NUMBER),
    "loops": ("def f(x):\n    while True: pass", NUMBER),
    "eats memory": ("def f(x): return [0] * 10 ** 10", NUMBER),
    "floods the channel": (
        "import os\nfor fd in range(3, 9):\n    try:\n"
        "        while True: os.write(fd, b'x' * 65536)\n    except OSError: pass\n"
        "def f(x): return 9",
        NUMBER,
    ),
    "nests without end": ("def f(x):\n    a = []\n    a.append(a)\n    return a", NUMBER),
    "lies about its class": (
        "class A:\n    __class__ = int\n    __eq__ = lambda s, o: True\ndef f(x): return A()",
        NUMBER,
    ),
}


@needs_lock
@pytest.mark.parametrize("name", CHEATS)
def test_code_that_wants_to_pass_without_being_right_does_not(name):
    code, test = CHEATS[name]
    assert passes_test(code, test, Jail(seconds=2.0, memory_mb=512)) in ("failed", "timeout")


@pytest.mark.parametrize("name", [n for n in CHEATS if n.startswith(("an ", "equals", "is ", "holds", "its own"))])
def test_these_would_pass_where_the_test_runs_beside_the_code(name):
    code, test = CHEATS[name]
    exec(f"{code}\n{test}", {})


def test_code_that_answers_for_the_channel_brings_no_names_but_those_asked_for():
    """It may say what `f` is; it may not say what `abs`, `math` or the builtins are."""

    def hostile(names):
        values = {"f": 9, "abs": "theirs", "math": "theirs", "__builtins__": {}, "other": 1}
        return {"values": values, "modules": {"m": "os", "n": "stages", "math": "cmath"}}

    tree = ast.parse("assert abs(f(2) - 4) < math.inf and m and n")
    assert names_of(tree, hostile) == {"f": 9, "m": os, "math": math}


@needs_lock
def test_code_that_hangs_costs_one_time_limit():
    import time

    start = time.monotonic()
    assert (
        reward(
            "def f(x):\n    while x > 1: pass\n    return x", [f"assert f({i}) == {i}" for i in range(10)], seconds=1
        )
        == 0.2
    )
    assert time.monotonic() - start < 4


@needs_lock
def test_sets_come_in_the_same_order_each_time():
    code = "print(*{'alpha', 'beta', 'gamma', 'delta', 'epsilon'})"
    assert len({sandbox.output_of(code, "", JAIL)[0] for _ in range(3)}) == 1


@needs_lock
def test_installed_packages_by_permission_only():
    code = "import numpy\ndef f(x): return int(numpy.sum([x, x]))"
    assert reward(code, NUMBER) == 0.0
    assert reward(code, NUMBER, packages=True, memory_mb=2048, seconds=10) == 1.0


@needs_lock
@pytest.mark.parametrize("code", ["def f(x): return 2 * x", "import numpy\ndef f(x): raise ImportError", "def f("])
@pytest.mark.parametrize(
    ("tests", "told"),
    [
        (
            f"import numpy\n{NUMBER}",
            r"`import numpy` fails \(ModuleNotFoundError: No module named 'numpy'.*packages: true",
        ),
        ("def check(g):\n    from numpy import array\n    assert g(2) == 4\ncheck(f)", "from numpy import array"),
        ([NUMBER, f"import no_such_module_at_all\n{NUMBER}"], "no_such_module_at_all"),
        (f"from math import no_such_name\n{NUMBER}", "ImportError: cannot import name 'no_such_name'"),
        (f"import math, json.no_such_part\n{NUMBER}", "json.no_such_part"),
    ],
)
def test_a_test_whose_own_imports_fail_makes_its_row_unscorable_whatever_the_code(code, tests, told):
    found = reward(code, tests)
    assert isinstance(found, Unscorable)
    assert re.search(told, found.reason)


@needs_lock
def test_also_where_the_completion_has_no_code():
    (found,) = passes_tests(["no code"], tests=[f"import numpy\n{NUMBER}"])
    assert isinstance(found, Unscorable)


@needs_lock
def test_installed_packages_that_are_not_there_either():
    found = reward("def f(x): return 4", f"import no_such_module_at_all\n{NUMBER}", packages=True)
    assert isinstance(found, Unscorable)
    assert "install it" in found.reason
    test = "import numpy\nassert int(numpy.sum([f(2), 0])) == 4"
    assert reward("def f(x): return 2 * x", test, packages=True, memory_mb=2048, seconds=10) == 1.0


@needs_lock
@pytest.mark.parametrize(
    "before",
    [
        "import math, os.path\nfrom collections import *\n",
        "from __future__ import annotations\n",
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n",
        "try:\n    import numpy\nexcept (ValueError, ModuleNotFoundError):\n    numpy = None\n",
        "import this\n",
    ],
)
def test_imports_that_can_be_had_or_that_the_test_handles(before):
    assert reward("def f(x): return 2 * x", [before + NUMBER]) == 1.0
    assert reward("def f(x): return 3 * x", [before + NUMBER]) == 0.0


@needs_lock
def test_an_import_that_fails_in_the_code_is_the_codes_failure():
    assert reward("import numpy\ndef f(x): return 2 * x", f"import math\n{NUMBER}") == 0.0


@pytest.mark.parametrize(
    ("tests", "told"),
    [
        ("assert f( == 1", "does not compile"),
        (["assert f(1)", "assert ("], "does not compile"),
        ("", "no tests"),
        (None, "no tests"),
        ([], "no tests"),
        ([{"input": "1"}], "a test is a text"),
        ([3], "a test is a text"),
        ("# nothing", "no statements"),
    ],
)
def test_a_test_that_cannot_be_run_makes_its_row_unscorable(tests, told):
    found = reward("def f(x): return x", tests)
    assert isinstance(found, Unscorable)
    assert told in found.reason


@needs_lock
def test_a_test_that_ends_its_own_process_is_not_passed_but_unscorable():
    assert isinstance(reward(ADD, "import unittest\nunittest.main()"), Unscorable)


def test_completions_without_code():
    assert passes_tests(["no code"], tests=["assert f(1) == 1"]) == [0.0]
    assert passes_tests(["no code"], tests=["assert f(1) == 1"], missing_reward=-1.0) == [-1.0]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\na\n```\n```python\nb\n```", "b\n"),
        ("```python\na\n```\n```\nb\n```", "a\n"),
        ("```\na\n```\n```bash\nb\n```", "a\n"),
        ("```py\na\n", "a\n"),
        ("```bash\na\n```", None),
        ("a", None),
    ],
)
def test_the_last_fence(text, code):
    assert last_fence(text) == code


@needs_lock
def test_a_fence_that_the_template_opened_and_other_rules():
    assert passes_tests([f"{ADD}\n```"], tests=["assert add(1, 2) == 3"], prompt_tail=["```python\n"]) == [1.0]
    turns = [{"role": "assistant", "content": f"<code>{ADD}</code>"}]
    assert passes_tests([turns], tests=["assert add(1, 2) == 3"], extract={"tag": "code"}) == [1.0]


@pytest.mark.parametrize(
    ("source", "count"),
    [("assert a\nassert b", 2), ("x = 1\nassert a\nassert b", 2), ("assert a\nx = 1\nassert b", 1), ("check(f)", 1)],
)
def test_splitting(source, count):
    assert len(split(source)) == count


def test_a_machine_without_a_lock_is_refused_unless_told_otherwise(monkeypatch):
    monkeypatch.setattr(python_tests, "problem", lambda: "no Landlock here")
    with pytest.raises(ValueError, match=r"no Landlock here.*`unlocked: true`"):
        check()
    check(unlocked=True)


@needs_lock
def test_a_lock_that_fails_is_an_error_and_no_failed_test(monkeypatch):
    monkeypatch.setattr(sandbox, "_readable", lambda packages: 5)
    with pytest.raises(SandboxError, match="could not lock"):
        passes_test(ADD, "assert add(1, 2) == 3", JAIL)


def test_without_the_lock_code_runs_all_the_same():
    assert reward(ADD, "assert add(1, 2) == 3", unlocked=True) == 1.0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"reward": "some"}, "reward is fraction or all"),
        ({"seconds": 0}, "seconds"),
        ({"memory_mb": 1}, "memory_mb"),
        ({"extract": "x"}, "extract"),
        ({"packages": 1}, "packages is true or false"),
        ({"unlocked": "yes"}, "unlocked is true or false"),
    ],
)
def test_wrong_arguments(arguments, told):
    with pytest.raises(ValueError, match=told):
        check(**arguments)
