"""Workspaces with a tiny model, and one of them trained for two iterations."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny import save_tiny
from tests.workspace import Workspace, tiny_params


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def new_workspace(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Workspace]:
    """Makes a fresh project folder with the tiny model's params."""
    return lambda: Workspace(tmp_path_factory.mktemp("run") / "project", copy.deepcopy(tiny_params(tiny_model)))


@pytest.fixture(scope="session")
def reference(new_workspace: Callable[[], Workspace]) -> Workspace:
    """Two iterations by `dvc repro`, undisturbed; to be read only."""
    workspace = new_workspace()
    workspace.plan(2)
    with workspace.warm():
        workspace.run("dvc", "repro")
    return workspace
