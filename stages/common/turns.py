"""One turn of a conversation in a user's data, `{role, content}`: what may be wrong with it, in one place for prompts,
demonstrations and preferences. Nothing is repaired; who reads the file adds file, row and column to the message.
"""

from typing import Any

Turn = dict[str, str]

ROLES = ("system", "user", "assistant")
TURN = "{role, content}"
NAMES = {str: "a string", list: "a list", dict: "an object", bool: "a boolean", int: "a number", float: "a number"}


def kind_of(value: object) -> str:
    """What a value of JSON is called."""
    return "null" if value is None else NAMES.get(type(value), f"of type {type(value).__name__}")


def problem_of(turn: Any, *, first: bool) -> str | None:
    """What is wrong with a turn, and what to do; None: nothing. `first`: it opens its conversation."""
    if not isinstance(turn, dict) or not {"role", "content"} <= set(turn):
        return f"expected {TURN}, found {str(turn)[:60]}"
    role, content = turn["role"], turn["content"]
    if role not in ROLES:
        return f"role is {role!r}; roles are {', '.join(ROLES)}"
    if role == "system" and not first:
        return "a system turn can only be the first; move it"
    if not isinstance(content, str):
        return f"content is {kind_of(content)}; it has to be a text"
    if not content.strip():
        return "content is empty; fill it in or remove the row"
    more = [name for name, value in turn.items() if name not in ("role", "content") and value is not None]
    return f"{', '.join(more)} would be lost: a turn is {TURN}; remove it" if more else None


def plain(turn: dict[str, Any]) -> Turn:
    """A turn that is in order, without keys that are null."""
    return {"role": turn["role"], "content": turn["content"]}
