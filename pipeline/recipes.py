"""`rloo recipe`: sets where a run starts and what it is rewarded for to one of recipes.yaml.

A recipe writes the same keys as every other, whatever params.yaml held before, and no other key; what it takes out can
be had again from version control. The one reward that belongs to the method, a preset's `overlong`, stays. The result
is validated before the file is replaced.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.presets import OVERLONG, is_penalty
from pipeline.yaml_text import ABSENT, Key, apply, flow, get, parse, put
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.params import ParamsError
from stages.common.params_file import PARAMS_FILE, parse_params

RECIPES_FILE = Path(__file__).with_name("recipes.yaml")


@dataclass(frozen=True)
class Recipe:
    """A named whole run: a value for each key that makes one up."""

    name: str
    summary: str
    settings: dict[Key, Any]


def read_recipes(path: Path = RECIPES_FILE) -> dict[str, Recipe]:
    """All recipes by name, in the order of the file."""
    raw = parse(path.read_text(encoding="utf-8"), path.name)
    return {
        name: Recipe(name, entry["summary"], {tuple(key.split(".")): value for key, value in entry["set"].items()})
        for name, entry in raw.items()
    }


def change(console: Console, name: str, *, dry_run: bool, path: Path = PARAMS_FILE) -> None:
    """Apply a recipe to params.yaml and print what changes; nothing is written if the result is not valid."""
    recipes = read_recipes()
    if name not in recipes:
        raise StageError(f"no recipe {name!r}; there are: {', '.join(recipes)}")
    if not path.exists():
        raise ParamsError(f"{path} does not exist; run from the project's folder")
    text, source = path.read_bytes().decode("utf-8"), str(path)
    raw = parse(text, source)
    wanted = dict(recipes[name].settings)
    if is_penalty(get(raw, OVERLONG)):
        wanted[OVERLONG[:-1]] = wanted[OVERLONG[:-1]] | {OVERLONG[-1]: get(raw, OVERLONG)}
    changed = {key: value for key, value in wanted.items() if get(raw, key) != value}
    parse_params(put(raw, changed, source), source)
    if changed and not dry_run:
        new = apply(text, changed, source)
        with publish(path) as scratch:
            scratch.write_bytes(new.encode("utf-8"))
    console.print(f"{name}: {recipes[name].summary}", markup=False, highlight=False)
    for line in [line_of(raw, key, value) for key, value in changed.items()] or ["nothing to change"]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def line_of(raw: Any, key: Key, value: Any) -> str:
    """What a key was and what it is now."""
    old = get(raw, key)
    return f"{'.'.join(key)}: {'absent' if old is ABSENT else flow(old)} -> {flow(value)}"


def show(console: Console) -> None:
    """All recipes, one line each."""
    for recipe in read_recipes().values():
        console.print(f"{recipe.name:8} {recipe.summary}", markup=False, highlight=False)
