"""`rloo serve` told to stop: idle, with a run under way, after its server is lost. It ends, and the run is Cancelled.

One server, three starts of `rloo serve`, and a reward that hangs.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.workspace import ROOT

SERVER = """
import time, pipeline
from pipeline.flows.server import start_server, wait_for
api = start_server()
wait_for(api)
print(api.url, flush=True)
time.sleep(600)
"""
ASK = """
import sys, json
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    deployment = client.read_deployment_by_name("rloo/tried")
    asked = {"iterations": 1, **json.loads(sys.argv[1])}
    print("id", client.create_flow_run_from_deployment(deployment.id, parameters=asked).id)
"""
LIST = """
from prefect.client.orchestration import get_client
import json
with get_client(sync_client=True) as client:
    flows = [run.state_name for run in client.read_flow_runs() if run.state_name != "Scheduled"]
    tasks = [[run.name, run.state_name] for run in client.read_task_runs()]
    paused = client.read_deployment_by_name("rloo/tried").paused
print(json.dumps([flows, tasks, paused]))
"""
HANGS = '''"""Hangs."""

import time


def hangs(completions, **columns):
    time.sleep(100)
'''


@pytest.fixture(scope="module")
def workspace(bare_workspace, tmp_path_factory):
    """A workspace with a server that lasts until the test ends it."""
    workspace, home = bare_workspace(), tmp_path_factory.mktemp("server")
    environment = os.environ | {"PREFECT_HOME": str(home / "home"), "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], cwd=home, env=environment, stdout=subprocess.PIPE, text=True
    )
    workspace.server = server
    workspace.extra["PREFECT_API_URL"] = server.stdout.readline().strip()
    (workspace.folder / "stages" / "score" / "hangs.py").write_text(HANGS)
    workspace.change("score.rewards.varied.function", "stages.score.hangs:hangs")
    yield workspace
    server.kill()
    server.wait()


@pytest.fixture
def serving(workspace):
    """`rloo serve`, once it serves; its output goes to a file."""
    log = workspace.folder / "serve.log"
    with log.open("wb") as output:
        serve = workspace.start("rloo", "serve", "--name", "tried", "--interval", "3600", output=output)
    while "Serving rloo/tried" not in log.read_text():
        assert serve.poll() is None, log.read_text()
        time.sleep(0.05)
    time.sleep(2)
    yield serve
    if serve.poll() is None:
        os.killpg(serve.pid, signal.SIGKILL)


def ended(serve, number):
    """Exit status, seconds, and what is left of it and its processes."""
    children = psutil.Process(serve.pid).children(recursive=True)
    began = time.monotonic()
    serve.send_signal(number)
    status = serve.wait(30)
    _, alive = psutil.wait_procs(children, timeout=max(0.0, 10 - (time.monotonic() - began)))
    left = [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    return status, time.monotonic() - began, left


def test_a_run_that_is_under_way_is_cancelled(workspace, serving):
    """And one that is refused has failed; the terminal says so of both."""
    workspace.run("python", "-c", ASK, '{"overrides": {"score.nonsense": 1}}')
    workspace.run("python", "-c", ASK, "{}")
    journal = workspace.folder / "data" / "logs" / "i0000" / "evaluate.jsonl"
    while not journal.exists():
        assert serving.poll() is None
        time.sleep(0.05)
    status, seconds, left = ended(serving, signal.SIGINT)
    assert (status, left) == (0, [])
    assert seconds < 10
    lines = workspace.run("python", "-c", LIST).splitlines()
    flows, tasks, paused = json.loads(next(line for line in lines if line.startswith("[")))
    assert sorted(set(flows)) == ["Cancelled", "Failed"]
    told = (workspace.folder / "serve.log").read_text()
    assert re.search(r"^rloo: run 1-iterations \(.*\) begins$", told, re.MULTILINE)
    assert re.search(r"^rloo: run 1-iterations has failed: .*score.nonsense", told, re.MULTILINE)
    assert re.search(r"^rloo: run 1-iterations is cancelled: stopped by SIG", told, re.MULTILINE)
    assert ["evaluate@i0000", "Cancelled"] in tasks
    assert {state for _, state in tasks} <= {"Cancelled", "Completed", "Cached"}
    assert paused, "what is scheduled waits for the next `rloo serve`"
    workspace.run("rloo", "heal")  # the locks are free


def test_an_idle_one_ends_at_sighup(serving):
    status, seconds, _ = ended(serving, signal.SIGHUP)
    assert status == 0
    assert seconds < 10


def test_both_end_when_their_server_is_lost(workspace, serving):
    """The run by itself, with a line and exit status 1; `rloo serve`, which waits for it, when it is told to."""
    journal, log = workspace.folder / "data" / "logs" / "i0000" / "evaluate.jsonl", workspace.folder / "train.log"
    journal.unlink()
    with log.open("wb") as output:
        train = workspace.start("rloo", "train", output=output)
    while not journal.exists():
        assert train.poll() is None, log.read_text()
        time.sleep(0.05)
    children = psutil.Process(train.pid).children(recursive=True)
    workspace.server.kill()
    workspace.server.wait()
    assert train.wait(40) == 1
    assert "is gone; what is finished stays, and the same command goes on from here" in log.read_text()
    assert "Traceback" not in log.read_text()
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    _, seconds, _ = ended(serving, signal.SIGTERM)
    assert seconds < 10
    assert "stopped by SIGTERM" in (workspace.folder / "serve.log").read_text()
