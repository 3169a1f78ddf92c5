"""What DVC needs of dvc.yaml and params.yaml to run one stage, as text: the parser it has takes a second for 300 kB.

Whole lines are kept or left out, so that what is kept means what it meant. A file in which that could be otherwise,
with anchors, several documents or another indentation, is not cut.
"""

import re
from functools import lru_cache

import yaml

KEY = re.compile(r"^([A-Za-z_][\w-]*):(?=\s)", re.MULTILINE)
STAGE = re.compile(r"^  ([A-Za-z_][\w-]*):(?=\s)", re.MULTILINE)
UNCUT = re.compile(r"^(?:---|\.\.\.|%|[^\s#A-Za-z_])|^[^#\n]*(?:[\s\[{,:])[&*][A-Za-z_]|<<:|\t", re.MULTILINE)
TEMPLATED = re.compile(r"\$\{\s*([A-Za-z_]\w*)")
PARAMS = "params.yaml"


def blocks(text: str, key: re.Pattern[str]) -> dict[str, str] | None:
    """Lines by key, each from its key to the next; None if a key occurs twice, or there is none."""
    found = list(key.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)] * bool(found)
    made = {match[1]: text[match.start() : end] for match, end in zip(found, ends, strict=True)}
    return made if made and len(made) == len(found) else None


@lru_cache(maxsize=8)  # DVC reads the same text several times for each stage
def one_stage(text: str, dvc_name: str) -> str | None:
    """A dvc.yaml with one stage (with all of the `foreach` that `rollout@i0003` is of); None if it cannot be cut."""
    top = None if UNCUT.search(text) else blocks(text, KEY)
    head, _, body = (top or {}).get("stages", "").partition("\n")
    stages = blocks(body, STAGE) if head.partition("#")[0].rstrip() == "stages:" else None
    name = dvc_name.partition("@")[0]
    if top is None or stages is None or name not in stages:
        return None
    return f"{top.get('vars', '')}\nstages:\n{stages[name]}"


@lru_cache(maxsize=8)
def some_params(text: str, dvc_yaml: str) -> str | None:
    """The sections of params.yaml that a dvc.yaml of one stage speaks of; None if it cannot be cut."""
    sections = None if UNCUT.search(text) else blocks(text, KEY)
    if sections is None:
        return None
    wanted = {*TEMPLATED.findall(dvc_yaml), *_declared(dvc_yaml)}
    return "".join(lines for name, lines in sections.items() if name in wanted)


def _declared(dvc_yaml: str) -> set[str]:
    (stage,) = yaml.load(dvc_yaml, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stages"].values()
    keys: list[str] = []
    for one in stage.get("do", stage).get("params", []):
        for file, names in one.items() if isinstance(one, dict) else [(PARAMS, [one])]:
            keys += (names or []) if file == PARAMS else []
    return {key.partition(".")[0] for key in keys}
