"""One checker of turns for prompts, demonstrations and preferences."""

import pytest

from stages.common.turns import plain, problem_of

USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("turn", "first", "problem"),
    [
        (USER, True, None),
        (USER, False, None),
        (USER | {"name": None}, True, None),
        (USER | {"role": "system"}, True, None),
        (USER | {"role": "system"}, False, "a system turn can only be the first"),
        (USER | {"role": "tool"}, True, "role is 'tool'; roles are system, user, assistant"),
        (USER | {"role": None}, True, "role is None"),
        ("Hi", True, "expected {role, content}, found Hi"),
        (None, True, "expected {role, content}, found None"),
        ({"role": "user"}, True, "expected {role, content}"),
        (USER | {"content": None}, True, "content is null; it has to be a text"),
        (USER | {"content": [{"text": "x"}]}, True, "content is a list"),
        (USER | {"content": 7}, True, "content is a number"),
        (USER | {"content": " \n"}, True, "content is empty"),
        (USER | {"tool_calls": [1], "name": "x"}, True, "tool_calls, name would be lost"),
    ],
)
def test_what_is_wrong_with_a_turn(turn, first, problem):
    found = problem_of(turn, first=first)
    assert found is None if problem is None else problem in found


def test_a_turn_loses_the_keys_that_are_null():
    assert plain(USER | {"name": None}) == USER
