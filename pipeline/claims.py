"""What a stage was computed from, in the words of dvc.lock: hashes of its code, and its values of params.yaml.

DVC reads both after the stage has ended, and writes down what it finds then. What was edited while the stage ran would
be claimed for results that it did not make. So the stage's command takes both before the work and after it, and fails
when they differ; and it leaves them in `data/.cache/used.json`, which is compared with what DVC wrote (`heal.py`).
"""

import json
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import md5
from pathlib import Path
from typing import Any

import yaml
from pathspec import GitIgnoreSpec

from stages.common.errors import StageError

PARAMS = "params.yaml"
CODE = ("stages/", "pipeline/study/")
IGNORE_FILE = Path(".dvcignore")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Numbers such as 5e-4 are numbers, as they are to DVC and in `params_file.py`."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)

Times = tuple[int, int, int]


class EditedError(StageError):
    """Code or params of a stage that changed while it ran."""


@dataclass(frozen=True)
class Claims:
    """`deps`: path of code -> hash, as in dvc.lock; `params`: file -> key -> value; `times`: of each file of code."""

    deps: dict[str, str]
    params: dict[str, dict[str, Any]]
    times: dict[str, Times]

    def difference(self, later: "Claims") -> str:
        """What changed, for people; empty if nothing did. A file that was written counts, whatever is in it now:
        it may have been something else for a while, and was imported then.
        """
        files = [
            path for path in self.times.keys() | later.times.keys() if self.times.get(path) != later.times.get(path)
        ]
        keys = [
            f"{key} of {file}"
            for file in self.params.keys() | later.params.keys()
            for key in self.params.get(file, {}).keys() | later.params.get(file, {}).keys()
            if self.params.get(file, {}).get(key) != later.params.get(file, {}).get(key)
        ]
        return ", ".join(sorted(files) + sorted(keys))

    def as_json(self) -> dict[str, Any]:
        return {"deps": self.deps, "params": self.params, "times": {k: list(v) for k, v in self.times.items()}}


def claims_of(dvc_name: str, file: Path = Path("dvc.yaml")) -> Claims:
    """Of a stage as dvc.yaml has it now, such as `rollout@i0003`; all of params.yaml and code that it names."""
    declared = declaration(dvc_name, file)
    times: dict[str, Times] = {}
    deps = {path: _hash(Path(path), times) for path in declared.get("deps", []) if path.startswith(CODE)}
    return Claims(deps, _values(declared.get("params", [])), times)


def declaration(dvc_name: str, file: Path) -> dict[str, Any]:
    """The stage's own part of dvc.yaml, with its key in place; empty if it is not there."""
    name, _, key = dvc_name.partition("@")
    try:
        found = _parsed(file.read_text(encoding="utf-8"))["stages"][name]
    except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
        raise EditedError(f"{file} was edited while {dvc_name} ran, and has no such stage now ({error!r})") from None
    text = json.dumps(found.get("do", found)).replace("${key}", key).replace("${item}", key)
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def _hash(path: Path, times: dict[str, Times]) -> str:
    """As DVC hashes a file or a folder."""
    if path.is_file():
        return _file_hash(path, times)
    ignored = ignored_by_dvc()
    files = [p for p in path.rglob("*") if p.is_file() and not ignored.match_file(p.as_posix())]
    names = sorted(p.relative_to(path).as_posix() for p in files)
    entries = [{"md5": _file_hash(path / name, times), "relpath": name} for name in names]
    return md5(json.dumps(entries, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def ignored_by_dvc() -> GitIgnoreSpec:
    """What DVC does not see: its .dvcignore, as it is now, has the patterns of git."""
    return _patterns(IGNORE_FILE.read_text(encoding="utf-8") if IGNORE_FILE.exists() else "")


@lru_cache(maxsize=4)
def _patterns(text: str) -> GitIgnoreSpec:
    return GitIgnoreSpec.from_lines(text.splitlines())


def _file_hash(path: Path, times: dict[str, Times]) -> str:
    try:
        stat = os.stat(path)
        times[str(path)] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    except FileNotFoundError:  # it was removed this moment; that shows in what is compared
        return "removed"


def load_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


@lru_cache(maxsize=4)
def _parsed(text: str) -> Any:
    """For reading, values too: dvc.yaml and params.yaml are mostly the text that they were for the stage before."""
    return load_yaml(text)


def _values(declared: list[Any]) -> dict[str, dict[str, Any]]:
    keys: dict[str, list[str]] = {}
    for one in declared:
        for file, names in one.items() if isinstance(one, dict) else [(PARAMS, [one])]:
            keys.setdefault(file, []).extend(names)
    return {file: _picked(Path(file), names) for file, names in keys.items()}


def _picked(file: Path, names: list[str]) -> dict[str, Any]:
    try:
        content = _parsed(file.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}
    return {name: value for name in names if (value := _at(content, name.split("."))) is not _MISSING}


_MISSING = object()


def _at(content: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(content, dict) or key not in content:
            return _MISSING
        content = content[key]
    return content
