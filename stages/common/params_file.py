"""Reading params.yaml: duplicate keys, unknown keys and forbidden values are errors that name the file and the key."""

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from stages.common.params import Params, ParamsError

PARAMS_FILE = Path("params.yaml")


def parse_params(raw: Any, source: str) -> Params:
    """Validate; all errors at once, each with its key as it is written in the file."""
    if not isinstance(raw, dict):
        raise ParamsError(f"{source}: expected sections such as `rollout:`, found {type(raw).__name__}")
    try:
        return Params.model_validate(raw)
    except ValidationError as error:
        raise ParamsError(problems(error, source)) from None


def problems(error: ValidationError, source: str, above: int = 0) -> str:
    """All that is wrong, a line each, with its key as written in `source`; `above`: outer keys that are not in it."""
    return "\n".join(_describe(source, detail, above) for detail in error.errors())


def _describe(source: str, detail: Any, above: int) -> str:
    key = ".".join(str(part) for part in detail["loc"][above:])
    if detail["type"] == "extra_forbidden":
        return f"{source}: {key}: no such option; remove it or correct its spelling"
    if detail["type"] == "missing":
        return f"{source}: {key}: missing; add it"
    message = str(detail["msg"]).removeprefix("Value error, ")
    if isinstance(detail["input"], dict):  # of options that do not go together, the whole section is the input
        return f"{source}: {key + ': ' if key else ''}{message}"
    return f"{source}: {key} = {detail['input']!r}: {message}"


class _UniqueKeys(yaml.SafeLoader):
    """A key that stands twice is an error; plain YAML takes the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # type: ignore[no-untyped-call]
        twice = [key for key in dict.fromkeys(keys) if keys.count(key) > 1]
        if twice:
            raise yaml.YAMLError(f"line {node.start_mark.line + 1}: {twice} stand(s) twice in one section")
        return super().construct_mapping(node, deep)


_UniqueKeys.add_implicit_resolver(  # as in YAML 1.2, and so in DVC: 5e-4 is a number without a point, too
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load_params(path: Path = PARAMS_FILE) -> Params:
    """Read and validate params.yaml."""
    if not path.exists():
        raise ParamsError(f"{path} does not exist; run from the project's folder")
    return parse_params(read_yaml(path), str(path))


def read_yaml(path: Path) -> Any:
    """The file's contents; a ParamsError if it is no YAML, or no text, or names a key twice."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        told = str(error).replace('in "<unicode string>", ', f"in {path}, ")
        raise ParamsError(f"{path}: not valid YAML: {told}") from None
