"""Changing single values of a YAML text; every other byte of it stays: comments, order, quotes, number formats.

Loading a file and dumping it again would indent it anew and move comments. Here the YAML library only says where a
value stands; the new one takes its place in the text, in flow style on the line of its key. A comment behind it stays
in the column that most comments of the file have, or as far behind the value as it was. `apply` reads the result
again: what cannot be changed in this way (an alias, say) is an error, never a damaged file.
"""

import copy
import re
from collections import Counter
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from stages.common.params import ParamsError

Key = tuple[str, ...]

ABSENT = object()  # the value of a key that is not there, and what to set a key to that shall not be
PUSHED = 3  # spaces before a comment whose value reaches beyond the usual column
COMMENT = re.compile(r"^[^\S\n]*[^\s#][^#\n]*?(#)", re.MULTILINE)


def parse(text: str, source: str) -> Any:
    """The content, by YAML 1.2 as in DVC; a key that stands twice is an error."""
    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        raise ParamsError(f"{source}: line {error.problem_mark.line + 1}: not valid YAML: {error.problem}") from None
    except YAMLError as error:
        raise ParamsError(f"{source}: not valid YAML: {error}") from None


def get(raw: Any, key: Key) -> Any:
    """The value of a key, `ABSENT` where it or a section above it is missing."""
    for name in key:
        if not isinstance(raw, dict) or name not in raw:
            return ABSENT
        raw = raw[name]
    return raw


def put(raw: dict[str, Any], changes: dict[Key, Any], source: str) -> dict[str, Any]:
    """A copy of the content with some keys changed; a section that is missing or empty is made."""
    raw = copy.deepcopy(raw)
    for (*sections, name), value in changes.items():
        place = raw
        for section in sections:
            place[section] = {} if place.get(section) is None else place[section]
            if not isinstance(place[section], dict):
                raise ParamsError(f"{source}: {section} = {place[section]!r}: expected a section with {name}")
            place = place[section]
        if value is ABSENT:
            del place[name]
        else:
            place[name] = value
    return raw


def apply(text: str, changes: dict[Key, Any], source: str) -> str:
    """The text with some keys changed; sections that are missing are added."""
    wanted = put(parse(text, source), changes, source)
    try:
        for key, value in changes.items():
            text = _drop(text, key) if value is ABSENT else _set(text, key, value)
        done = parse(text, source) == wanted
    except (ParamsError, YAMLError):
        done = False
    if not done:
        keys = ", ".join(".".join(key) for key in changes)
        raise ParamsError(f"{source}: is not written plainly enough to change {keys} in place; change it by hand")
    return text


def flow(value: Any) -> str:
    """A value on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.removesuffix("\n").removesuffix("\n...")


def _entries(node: Node) -> list[tuple[ScalarNode, Node]]:
    return list(node.value) if isinstance(node, MappingNode) else []


def _end(text: str, node: Node) -> int:
    """Where a value ends: the end mark of a block is that of the blank lines and comments behind it."""
    if not isinstance(node, CollectionNode) or node.flow_style:
        return len(text[: node.end_mark.index].rstrip())
    last = node.value[-1]
    return _end(text, last[1] if isinstance(last, tuple) else last)


def _line_end(text: str, place: int) -> int:
    found = text.find("\n", place)
    return len(text) if found < 0 else found


def _column(text: str, place: int) -> int:
    return place - (text.rfind("\n", 0, place) + 1)


def _set(text: str, key: Key, value: Any) -> str:
    """Replace the value, or add the key to the innermost of its sections that is there."""
    node = YAML(typ="safe", pure=True).compose(text)
    for depth, name in enumerate(key):
        found = [entry for entry in _entries(node) if entry[0].value == name]
        if not found:
            return _add(text, node, key[depth:], value)
        title, node = found[0]
        if depth < len(key) - 1 and not isinstance(node, MappingNode):  # an empty section
            return _replace(text, title, node, _nested(key[depth + 1 :], value))
    return _replace(text, title, node, value)


def _nested(key: Key, value: Any) -> Any:
    return {key[0]: _nested(key[1:], value)} if key else value


def _replace(text: str, title: ScalarNode, node: Node, value: Any) -> str:
    colon = text.index(":", title.end_mark.index) + 1
    start, end = node.start_mark.index, _end(text, node)
    if "\n" in text[colon:start]:  # a block below its key: its lines go, a comment on the key's line stays
        text = text[: _line_end(text, colon)] + text[_line_end(text, end) :]
        start = end = colon
    new = text[:start] + (" " if start == colon else "") + flow(value)
    rest = text[end:]
    gap = re.match(r"[ \t]+(?=#)", rest)
    return new + (" " * _gap(text, end, gap.end(), len(new)) + rest[gap.end() :] if gap else rest)


def _gap(text: str, end: int, gap: int, new_length: int) -> int:
    """Spaces between a new value and the comment behind it."""
    usual = Counter(match.start(1) - match.start() for match in COMMENT.finditer(text)).most_common(1)[0][0]
    old = _column(text, end)
    if old + gap != usual and not (old >= usual and gap == PUSHED):
        return gap
    room = usual - (old + new_length - end)
    return room if room > 0 else PUSHED


def _add(text: str, node: Node, key: Key, value: Any) -> str:
    """A key that is missing, with the sections that are missing above it, behind the others of its section."""
    entries = _entries(node)
    if isinstance(node, CollectionNode) and node.flow_style:
        place = _end(text, entries[-1][1]) if entries else node.start_mark.index + 1
        return text[:place] + (", " if entries else "") + flow(_nested(key, value))[1:-1] + text[place:]
    place = _line_end(text, _end(text, entries[-1][1]))
    newline, indent = "\r\n" if "\r\n" in text else "\n", entries[0][0].start_mark.column
    place -= text[:place].endswith("\r")
    lines = [" " * (indent + 2 * depth) + f"{name}:" for depth, name in enumerate(key)]
    return text[:place] + newline + newline.join(lines) + f" {flow(value)}" + text[place:]


def _drop(text: str, key: Key) -> str:
    """Without the key: its lines, or its part of a flow mapping with the comma."""
    section = node = YAML(typ="safe", pure=True).compose(text)
    place = 0
    for name in key:
        section, names = node, [title.value for title, _ in _entries(node)]
        if name not in names:  # it comes from elsewhere, by a merge
            return text
        place = names.index(name)
        node = section.value[place][1]
    start, end = section.value[place][0].start_mark.index, _end(text, node)
    if not section.flow_style:
        return text[: text.rfind("\n", 0, start) + 1] + text[_line_end(text, end) + 1 :]
    if place:
        start = _end(text, section.value[place - 1][1])
    elif len(section.value) > 1:
        end = section.value[1][0].start_mark.index
    return text[:start] + text[end:]
