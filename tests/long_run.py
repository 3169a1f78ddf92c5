"""A run of twelve iterations in windows of five, and what tests do with it."""

import copy
import shutil
from pathlib import Path

import yaml

from tests.workspace import Workspace

SIZE, ITERATIONS, EVERY = 5, 12, 6


def lock_of(workspace, lock="dvc.lock"):
    return yaml.safe_load((workspace.folder / lock).read_text())["stages"]


def write_lock(path, stages):
    path.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}, sort_keys=False))


def of_run(stages):
    """What comes before the first iteration: each window's lock has it."""
    return {name: entry for name, entry in stages.items() if "@i" not in name or name == "evaluate@i0000"}


def commit(workspace, message="a run"):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    workspace.run("git", "add", "-A")
    workspace.run("git", *who, "commit", "-q", "-m", message)


def at(workspace: Workspace, folder: Path) -> Workspace:
    """The commands of a workspace in another folder."""
    moved = copy.copy(workspace)
    moved.folder, moved.params = folder, copy.deepcopy(workspace.params)
    moved.extra = {name: value for name, value in workspace.extra.items() if name == "PREFECT_API_URL"}
    return moved


def drop(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
