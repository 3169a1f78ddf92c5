"""Workspaces with a tiny model, and one of them trained for two iterations."""

import copy
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.tiny import save_tiny
from tests.workspace import ROOT, Workspace, tiny_params


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def bare_workspace(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Workspace]:
    """Makes a fresh project folder with the tiny model's params. Its runs have Prefect servers of their own."""
    return lambda: Workspace(tmp_path_factory.mktemp("run") / "project", copy.deepcopy(tiny_params(tiny_model)))


@pytest.fixture(scope="session")
def new_workspace(bare_workspace: Callable[[], Workspace], prefect_server: str) -> Callable[[], Workspace]:
    """The same, but runs report to a server that all share: one of a run's own takes seconds to start."""

    def make() -> Workspace:
        workspace = bare_workspace()
        workspace.extra["PREFECT_API_URL"] = prefect_server
        return workspace

    return make


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = subprocess.Popen(
            [sys.executable, "-m", "pipeline.flows.server_process", str(listening.fileno()), str(os.getpid())],
            pass_fds=[listening.fileno()],
            cwd=ROOT,
            env=os.environ | {"PREFECT_HOME": str(tmp_path_factory.mktemp("prefect")), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
        httpx.get(f"{url}/health", timeout=60).raise_for_status()
        yield url
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def reference(bare_workspace: Callable[[], Workspace]) -> Workspace:
    """Two iterations by `dvc repro`, undisturbed; to be read only."""
    workspace = bare_workspace()
    workspace.plan(2)
    with workspace.warm():
        workspace.run("dvc", "repro")
    return workspace
