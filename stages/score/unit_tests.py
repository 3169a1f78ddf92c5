"""The unit tests of a row, as its column holds them: texts of statements, or inputs and outputs of a program.

`assert` statements at the end of a text are one test each, and what is before them is part of each; any other text is
one test. A test that is none makes the row unscorable: no code would pass it.
"""

import ast
from collections.abc import Mapping
from typing import Any

from stages.score.outcome import Unscorable

Test = str | tuple[str, str]  # statements, or input and output of a program


def tests_of(value: Any) -> list[Test] | Unscorable:
    """The tests of a row, each checked to compile."""
    listed = split(value) if isinstance(value, str) else list(value or [])
    if isinstance(listed, Unscorable):
        return listed
    if not listed:
        return Unscorable("the row has no tests")
    tests: list[Test] = []
    for one in listed:
        if isinstance(one, Mapping) and isinstance(one.get("input"), str) and isinstance(one.get("output"), str):
            tests.append((one["input"], one["output"]))
        elif not isinstance(one, str):
            return Unscorable(f"a test is a text of statements or {{input, output}}, not {str(one)[:80]!r}")
        elif isinstance(tree := parsed(one), Unscorable):
            return tree
        else:
            tests.append(one)
    return tests


def parsed(source: str) -> ast.Module | Unscorable:
    try:
        tree = ast.parse(source)
        compile(tree, "<test>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Unscorable(f"the test {source[:80]!r} does not compile: {type(error).__name__}: {error}")
    return tree if tree.body else Unscorable("a test has no statements")


def split(source: str) -> list[str] | Unscorable:
    """One test for each assert, if there is nothing but asserts from the first on; else the whole text."""
    tree = parsed(source) if source.strip() else Unscorable("the row has no tests")
    if isinstance(tree, Unscorable):
        return tree
    first = next((i for i, node in enumerate(tree.body) if isinstance(node, ast.Assert)), len(tree.body))
    setup, asserts = tree.body[:first], tree.body[first:]
    if not asserts or not all(isinstance(node, ast.Assert) for node in asserts):
        return [source]
    return [ast.unparse(ast.Module([*setup, one], [])) for one in asserts]
