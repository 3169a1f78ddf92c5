"""What a deployed run is asked to change: a preset and single options, written to params.yaml before anything else.

params.yaml stays the truth of the workspace: a run of a deployment and `rloo train` after it do the same. Both changes
are made in the text, as `rloo preset` makes them, and are valid together or not made at all.
"""

from pathlib import Path
from typing import Any

from pipeline.presets import changes as changes_of_preset
from pipeline.presets import named
from pipeline.yaml_text import ABSENT, Key, apply, get, parse, put
from stages.common.files import publish
from stages.common.params import ParamsError
from stages.common.params_file import PARAMS_FILE, parse_params


def settle(preset: str | None, overrides: dict[str, Any], path: Path = PARAMS_FILE) -> dict[str, Any]:
    """Write both to params.yaml; returns what has changed, by dotted key. A ParamsError leaves the file as it is.

    `overrides`: `{"score.kl.beta": 0.1}` or `{"score": {"kl": {"beta": 0.1}}}`.
    """
    if not path.exists():
        raise ParamsError(f"{path} does not exist; a deployed run has the project's folder as its working directory")
    text, source = path.read_bytes().decode("utf-8"), str(path)  # bytes: line ends stay as they are
    raw = parse(text, source)
    parse_params(raw, source)
    changed = changes_of_preset(raw, named(preset), source) if preset else {}
    after = put(raw, changed, source)
    own = {key: value for key, value in keys_of(overrides, after).items() if get(after, key) != value}
    changed = {key: value for key, value in changed.items() if key not in own} | own
    try:
        parse_params(put(raw, changed, source), source)
    except ParamsError as error:
        raise ParamsError(f"{error}\n{source} stays as it is") from None
    if changed:
        new = apply(text, changed, source)
        with publish(path) as scratch:
            scratch.write_bytes(new.encode("utf-8"))
    return {".".join(key): None if value is ABSENT else value for key, value in changed.items()}


def keys_of(overrides: dict[str, Any], raw: Any, above: Key = ()) -> dict[Key, Any]:
    """Values by key: a mapping goes into what is a section in params.yaml, and is a value anywhere else."""
    found: dict[Key, Any] = {}
    for name, value in overrides.items():
        key = (*above, *str(name).split("."))
        if isinstance(value, dict) and value and isinstance(get(raw, key), dict):
            inner = keys_of(value, raw, key)
        else:
            inner = {key: value}
        if twice := sorted(".".join(one) for one in found.keys() & inner.keys()):
            raise ParamsError(f"overrides: {', '.join(twice)} is there twice")
        found |= inner
    return found
