"""What unit tests import by statements of their own, and whether their locked process has it.

A test that cannot import what it needs fails for every code, right or wrong: no verdict at all. It is looked for before
any generated code runs, in a locked process as the test will have it, and never told from an error of the code.
"""

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from stages.score.outcome import Unscorable
from stages.score.sandbox import Jail, output_of

SECONDS = 30.0  # for all imports of a row; the time limit of a test has nothing to do with it
HANDLERS = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
PROGRAM = """
import json
told = {{}}
for statement in {statements!r}:
    try:
        exec(statement, {{}})
    except BaseException as error:
        told[statement] = f"{{type(error).__name__}}: {{error}}"
print()
print(json.dumps(told))
"""


def not_importable(tests: Sequence[str], jail: Jail) -> Unscorable | None:
    """The first import of the tests that fails, and the remedy; None if all can be had."""
    statements = tuple(sorted({ast.unparse(node) for test in tests for node in imports(ast.parse(test))}))
    failed = failures(statements, replace(jail, seconds=max(SECONDS, jail.seconds))) if statements else {}
    if failed is None:
        return Unscorable(
            f"the imports of the tests took longer than {SECONDS:g} s, or ended the process", passing=True
        )
    for statement, error in failed.items():
        remedy = (
            "install it, or take the import out" if jail.packages else "set `packages: true`, or take the import out"
        )
        return Unscorable(f"the test's `{statement}` fails ({error}), whatever the code does; {remedy}")
    return None


def imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements, but for those whose failure the test itself handles."""
    if isinstance(tree, (ast.Import, ast.ImportFrom)):
        if not (isinstance(tree, ast.ImportFrom) and tree.module == "__future__"):
            yield tree
        return
    handled = tree.body if isinstance(tree, ast.Try) and any(map(_takes_import_errors, tree.handlers)) else []
    for child in ast.iter_child_nodes(tree):
        if child not in handled:
            yield from imports(child)


def _takes_import_errors(handler: ast.ExceptHandler) -> bool:
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else HANDLERS
    return bool(names & HANDLERS)


@lru_cache(maxsize=1024)
def failures(statements: tuple[str, ...], jail: Jail) -> dict[str, str] | None:
    """The error of each statement that fails in a process of this kind; None if the process did not get to the end."""
    printed, outcome = output_of(PROGRAM.format(statements=statements), "", jail)
    if outcome != "passed":
        return None
    told: dict[str, str] = json.loads(printed.splitlines()[-1])
    return told
