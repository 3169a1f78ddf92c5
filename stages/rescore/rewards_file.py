"""The rewards that rollouts are scored with anew: a YAML file like `score.rewards`, or functions given directly.

They are validated by the classes that validate params.yaml; the errors name this file and its keys.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stages.common.errors import StageError
from stages.common.params import ParamsError, Reward, Score
from stages.common.params_file import problems, read_yaml

OPTION = "--rewards"
HINT = "a YAML file like score.rewards in params.yaml, module:function, or path/to/file.py:function"
FUNCTION = re.compile(r"(?:[\w.]+|[^:]+\.py):(\w+)")
YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Rewards:
    """The rewards by name, and how an error names the place of each."""

    rewards: dict[str, Reward]
    source: str  # the file, or the option
    prefix: str  # of the keys in it: "rewards." where the file has that key on top

    def place(self, name: str) -> str:
        """`rewards.yaml: rewards.brief`."""
        return f"{self.source}: {self.prefix}{name}"

    def placed(self, message: str) -> str:
        """A message of the score stage, which speaks of `score.rewards` in params.yaml, with the place that holds them
        here.
        """
        return re.sub(r"(params\.yaml: )?\bscore\.rewards\.", lambda _: self.place(""), message)


def read_rewards(given: Sequence[str]) -> Rewards:
    """What `--rewards` gives, once or several times; a StageError that names the option, or the file and the key."""
    files = [one for one in given if one.endswith(YAML)]
    if files and len(given) > 1:
        raise StageError(f"{OPTION} {' '.join(given)}: give one YAML file, or functions, not both")
    return _of_file(Path(files[0])) if files else _of_functions(given)


def _of_functions(given: Sequence[str]) -> Rewards:
    """Each reward has the name of its function, the weight 1 and no arguments."""
    rewards: dict[str, Reward] = {}
    for one in given:
        match = FUNCTION.fullmatch(one)
        if match is None:
            raise StageError(f"{OPTION} {one!r}: expected {HINT}")
        if match[1] in rewards:
            raise StageError(f"{OPTION}: two functions are called {match[1]}; name rewards in a YAML file instead")
        rewards[match[1]] = Reward(function=one)
    if not rewards:
        raise StageError(f"{OPTION} is missing: give {HINT}")
    return Rewards(rewards, OPTION, "")


def _of_file(path: Path) -> Rewards:
    if not path.is_file():
        raise StageError(f"{OPTION} {path}: no such file; paths are relative to the project's folder")
    raw = read_yaml(path)
    on_top = _has_top_key(raw)
    inner = raw["rewards"] if on_top else raw
    if not isinstance(inner, dict) or not inner:
        raise ParamsError(f"{path}: expected rewards by name, such as `brief: {{function: module:name}}`")
    nameless = [name for name in inner if not isinstance(name, str)]
    if nameless:
        raise ParamsError(f"{path}: {nameless[0]!r}: the name of a reward is a text; put it in quotes")
    try:
        found = Score.model_validate({"rewards": inner, "kl": {"beta": 0.0}}).rewards
    except ValidationError as error:
        raise ParamsError(problems(error, str(path), above=0 if on_top else 1)) from None
    return Rewards(found, str(path), "rewards." if on_top else "")


def _has_top_key(raw: Any) -> bool:
    """Whether the file is `rewards: {...}`, and not a mapping with one reward that is called so."""
    if not isinstance(raw, dict) or list(raw) != ["rewards"]:
        return False
    inner = raw["rewards"]
    return not (isinstance(inner, dict) and any(isinstance(inner.get(key), str) for key in ("function", "model")))
