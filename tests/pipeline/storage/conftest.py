"""A run of twelve iterations in windows of five, of which two are finished and one is open; copies and clones of it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.long_run import EVERY, ITERATIONS, SIZE, at, commit
from tests.workspace import Workspace


@pytest.fixture(scope="session")
def long_run(new_workspace: Callable[[], Workspace]) -> Workspace:
    """To be read only; committed."""
    workspace = new_workspace()
    workspace.run("rloo", "plan", str(ITERATIONS), "--evaluate-every", str(EVERY), "--window", str(SIZE))
    workspace.run("rloo", "train")
    commit(workspace)
    return workspace


@pytest.fixture
def copied(long_run: Workspace, tmp_path: Path) -> Workspace:
    """The run with its cache, hard links and all, to be changed."""
    subprocess.run(["cp", "-a", str(long_run.folder), str(tmp_path / "project")], check=True)
    return at(long_run, tmp_path / "project")


@pytest.fixture
def clone(long_run: Workspace) -> Callable[[Workspace, Path], Workspace]:
    """`git clone` of a workspace: what a second machine has."""

    def make(workspace: Workspace, folder: Path) -> Workspace:
        subprocess.run(["git", "clone", "-q", str(workspace.folder), str(folder)], check=True)
        return at(workspace, folder)

    return make
