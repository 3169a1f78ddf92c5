"""The folder that the dry run works in: the project by symbolic links, with a params.yaml and `data` of its own.

It lies under `data/.partial` with this process's id in its name, so that whatever runs next removes what a killed check
left. Of `data` only what no stage writes is linked, as users put files there, and the cache of paid calls.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from stages.common.errors import StageError
from stages.common.files import sweep_partial
from stages.common.params_file import PARAMS_FILE
from stages.common.paths import DATA, PARTIAL, REWARD_CACHE
from stages.common.processes import own_identity

OWN = frozenset({"data", ".git", ".dvc", "dvc.lock", "params.yaml"})
KEPT = DATA / "check"  # what `--keep` leaves
NOT_LINKED = frozenset({"logs", "rescored", "seconds.csv", KEPT.name})  # written by commands, not by stages of the DAG
CACHE = REWARD_CACHE.parent


def outputs_of(dvc_file: Path = Path("dvc.yaml")) -> set[str]:
    """The names in `data` under which the stages write."""
    if not dvc_file.exists():
        raise StageError(f"no {dvc_file} here; run `rloo` from the project's folder")
    found: set[str] = set()
    for entry in yaml.safe_load(dvc_file.read_text(encoding="utf-8"))["stages"].values():
        stage: dict[str, Any] = entry.get("do", entry)
        for out in (*stage.get("outs", ()), *stage.get("metrics", ())):
            path = Path(out if isinstance(out, str) else next(iter(out)))
            if path.parts[0] == DATA.name:
                found.add(path.parts[1])
    return found


def place(source: Path, target: Path) -> None:
    """A symbolic link `target` to `source`, which may lie anywhere."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(source.absolute())


def fill(folder: Path) -> None:
    """Link what the stages read: the project's top level, and users' files in `data`."""
    for source in Path().iterdir():
        if source.name not in OWN:
            place(source, folder / source.name)
    CACHE.mkdir(parents=True, exist_ok=True)
    place(CACHE, folder / CACHE)
    made = outputs_of() | NOT_LINKED
    for source in DATA.iterdir():
        if source.name not in made and not source.name.startswith("."):
            place(source, folder / DATA / source.name)


@contextmanager
def scratch_project(*, keep: bool) -> Iterator[Path]:
    """A filled folder (absolute), removed afterwards, or moved to `data/check` if it is to be kept."""
    sweep_partial()
    folder = (PARTIAL / f"{own_identity()}.check").absolute()
    folder.mkdir(parents=True)
    try:
        fill(folder)
        yield folder
        if keep:
            shutil.rmtree(KEPT, ignore_errors=True)
            folder.rename(KEPT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in the folder for the duration of the block."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def write_params(content: dict[str, Any], folder: Path) -> None:
    """The params of the dry run, so that stages can be run by hand in a folder that was kept."""
    (folder / PARAMS_FILE).write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
