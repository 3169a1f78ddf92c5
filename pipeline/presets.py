"""`rloo preset`: sets the method of params.yaml to a named one of presets.yaml.

A preset writes every key that makes up a method, whatever params.yaml held before, and no other key: sizes, rates and
the rewards of the user are none of its business. The one reward it does write is `overlong`, DAPO's soft penalty: other
presets take it out again. The result is validated before the file is replaced.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from pipeline.yaml_text import ABSENT, Key, apply, flow, get, parse, put
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.params import Params, ParamsError
from stages.common.params_file import PARAMS_FILE, parse_params

PRESETS_FILE = Path(__file__).with_name("presets.yaml")
OVERLONG: Key = ("score", "rewards", "overlong")
PENALTY = "stages.score.overlong:soft_overlong"


@dataclass(frozen=True)
class Preset:
    """A named method: a value for each key of `base`, and which of them it sets itself."""

    name: str
    summary: str
    paper: str
    settings: dict[Key, Any]
    own: frozenset[Key]


def read_presets(path: Path = PRESETS_FILE) -> dict[str, Preset]:
    """All presets by name, in the order of the file."""
    raw = parse(path.read_text(encoding="utf-8"), path.name)
    return {name: _preset(name, dict(entry), raw["base"]) for name, entry in raw["presets"].items()}


def _preset(name: str, entry: dict[str, Any], base: dict[str, Any]) -> Preset:
    summary, paper = entry.pop("summary"), entry.pop("paper")
    keys, own = _flat(base, base), _flat(entry, base)
    if unknown := own.keys() - keys.keys():
        raise StageError(f"{PRESETS_FILE.name}: {name}: not in base: {sorted('.'.join(key) for key in unknown)}")
    return Preset(name, summary, paper, {**keys, **own}, frozenset(own))


def _flat(entry: dict[str, Any], base: Any, above: Key = ()) -> dict[Key, Any]:
    """Values by key; what is a section in base is one here, anything else is a value."""
    found: dict[Key, Any] = {}
    for name, value in entry.items():
        inner = base.get(name) if isinstance(base, dict) else None
        if isinstance(inner, dict) and isinstance(value, dict):
            found |= _flat(value, inner, (*above, name))
        else:
            found[*above, name] = value
    return found


def named(name: str) -> Preset:
    presets = read_presets()
    if name not in presets:
        raise StageError(f"no preset {name!r}; there are: {', '.join(presets)}")
    return presets[name]


def _blanks(raw: Any) -> dict[str, Any]:
    """What to write for the values in angle brackets. Where params.yaml lacks what they take, validation says so."""
    prompts, tokens = (get(raw, ("rollout", name)) for name in ("prompts_per_iteration", "max_new_tokens"))
    prompts, tokens = (value if isinstance(value, int) else 1 for value in (prompts, tokens))
    rewards = get(raw, ("score", "rewards"))
    names = [name for name in rewards if not is_penalty(rewards[name])] if isinstance(rewards, dict) else []
    return {
        "<4 * rollout.prompts_per_iteration>": 4 * prompts,
        "<first of score.rewards>": next(iter(names), None),  # not the penalty: lengths differ without any signal
        "<rollout.max_new_tokens>": tokens,
        "<a fifth of rollout.max_new_tokens>": max(1, tokens // 5),
    }


def is_penalty(reward: Any) -> bool:
    """Whether it is the reward that presets write, and not one of the user's under its name."""
    return bool(get(reward, ("function",)) == PENALTY)


def _filled(value: Any, blanks: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(inner, blanks) for name, inner in value.items()}
    return blanks.get(value, value) if isinstance(value, str) else value


def changes(raw: Any, preset: Preset, source: str) -> dict[Key, Any]:
    """What params.yaml has to change, by key; `ABSENT` for what has to go."""
    blanks = _blanks(raw)
    wanted = {key: _filled(value, blanks) for key, value in preset.settings.items()}
    mine = get(raw, OVERLONG)
    if wanted[OVERLONG] is None:
        wanted[OVERLONG] = ABSENT if is_penalty(mine) else mine
    elif mine is not ABSENT and not is_penalty(mine):
        raise ParamsError(
            f"{source}: {'.'.join(OVERLONG)} is not {PENALTY}; {preset.name} adds that under this name: rename yours"
        )
    return {key: value for key, value in wanted.items() if get(raw, key) != value}


def change(console: Console, name: str, *, dry_run: bool, path: Path = PARAMS_FILE) -> None:
    """Apply a preset to params.yaml and print what changes; nothing is written if the result is not valid."""
    preset = named(name)
    if not path.exists():
        raise ParamsError(f"{path} does not exist; run from the project's folder")
    text, source = path.read_bytes().decode("utf-8"), str(path)  # bytes: line ends stay as they are
    raw = parse(text, source)
    if not isinstance(raw, dict):
        parse_params(raw, source)
    changed = changes(raw, preset, source)
    try:
        params = parse_params(put(raw, changed, source), source)
    except ParamsError as error:
        raise ParamsError(f"{error}\n{source} stays as it is; the options of {name} are in `rloo preset`") from None
    new = apply(text, changed, source)
    if changed and not dry_run:
        with publish(path) as scratch:
            scratch.write_bytes(new.encode("utf-8"))
    for line in report(raw, changed, preset, params):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def report(raw: Any, changed: dict[Key, Any], preset: Preset, params: Params) -> list[str]:
    """One line for each key that changes, and a word on the schedule, which counts optimizer steps."""
    lines = [f"{'.'.join(key)}: {_text(get(raw, key))} -> {_text(value)}" for key, value in changed.items()]
    steps, horizon = params.update.epochs * params.update.minibatches, params.update.schedule.horizon
    lines = [f"{preset.name}: {preset.summary} ({preset.paper})", *(lines or ["nothing to change"])]
    if steps > 1 and horizon:
        lines.append(f"An iteration takes {steps} optimizer steps, update.schedule.horizon is {horizon} of them.")
    return lines


def _text(value: Any) -> str:
    return "absent" if value is ABSENT else flow(value)
