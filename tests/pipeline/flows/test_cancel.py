"""`rloo train` told to stop while a stage works: nothing is left of it, Prefect knows, and nothing went to the net.

One workspace and three cold starts: a reward that hangs holds the first evaluation until the signal comes.
"""

import json
import os
import signal
import subprocess
import time

import psutil
import pytest

from pipeline.flows.record import RECORD

HANGS = '''"""Hangs, so that a run can be stopped in the middle of a stage."""

import time


def hangs(completions, **columns):
    time.sleep(100)
'''
HOOK = """
import os, sys

def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        where = arguments[1] if event == "socket.connect" else arguments[0]
        with open(os.environ["CONNECTIONS"], "a") as file:
            file.write(f"{event} {where!r}\\n")

sys.addaudithook(hear)
"""
LIST = """
from prefect.client.orchestration import get_client
import json
with get_client(sync_client=True) as client:
    flows = [[run.flow_id.hex, run.name, run.state_name, run.state.message] for run in client.read_flow_runs()]
    tasks = [[run.name, run.state_name] for run in client.read_task_runs()]
print(json.dumps({"flows": flows, "tasks": tasks}))
"""


@pytest.fixture(scope="module")
def stopped(bare_workspace, tmp_path_factory):
    """A workspace, what three runs in it came to, and every connection that any of their processes opened."""
    workspace, hook = bare_workspace(), tmp_path_factory.mktemp("hook")
    (hook / "sitecustomize.py").write_text(HOOK)
    connections = hook / "connections"
    workspace.extra |= {
        "PYTHONPATH": f"{workspace.folder}{os.pathsep}{hook}",
        "CONNECTIONS": str(connections),
    }
    workspace.extra["PREFECT_HOME"] = str(workspace.folder / ".prefect")
    (workspace.folder / "stages" / "score" / "hangs.py").write_text(HANGS)
    workspace.change("score.rewards.varied.function", "stages.score.hangs:hangs")
    workspace.plan(1)
    ended = {number: stop(workspace, number) for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)}
    workspace.extra.pop("CONNECTIONS")
    workspace.extra["PYTHONPATH"] = str(workspace.folder)
    lines = workspace.run("python", "-c", LIST).splitlines()
    runs = json.loads(next(line for line in lines if line.startswith("{")))
    return workspace, ended, runs, connections.read_text().splitlines()


def stop(workspace, number):
    """Exit status, output, what is left of its processes, and how long that took, of a run that gets the signal."""
    began = time.time()
    run = subprocess.Popen(
        workspace.command("rloo", "train"),
        cwd=workspace.folder,
        env=workspace.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    journal = workspace.folder / "data" / "logs" / "i0000" / "evaluate.jsonl"
    while not (journal.exists() and json.loads(journal.read_text().splitlines()[0])["time"] > began):
        assert run.poll() is None, run.stdout.read()
        time.sleep(0.05)
    children = psutil.Process(run.pid).children(recursive=True)
    sent = time.monotonic()
    run.send_signal(number)
    output, _ = run.communicate(timeout=30)
    seconds = time.monotonic() - sent
    _, alive = psutil.wait_procs(children, timeout=5)
    left = [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    return {"status": run.returncode, "output": output, "left": left, "seconds": seconds, "children": len(children)}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_told_to_stop_leaves_nothing_and_says_so_in_a_line(stopped, number):
    _, ended, _, _ = stopped
    one = ended[number]
    assert one["status"] == 128 + number
    assert one["children"] >= 3  # the server, the worker, the stage
    assert one["left"] == []
    assert one["seconds"] < 10
    assert f"rloo: stopped by {number.name}; what is finished stays" in one["output"]
    assert "Traceback" not in one["output"]


def test_even_a_run_that_is_killed_leaves_no_process(stopped):
    _, ended, _, _ = stopped
    assert ended[signal.SIGKILL]["left"] == []


def test_prefect_knows_how_each_run_ended(stopped):
    _, _, runs, _ = stopped
    outer = {(name, state, message) for _, name, state, message in runs["flows"] if name == "1-iterations"}
    killed = "its process was killed; the next run in the workspace has found that"
    assert outer == {
        ("1-iterations", "Crashed", killed),
        ("1-iterations", "Cancelled", "stopped by SIGINT"),
        ("1-iterations", "Cancelled", "stopped by SIGTERM"),
    }
    states = {state for _, _, state, _ in runs["flows"]} | {state for _, state in runs["tasks"]}
    assert states == {"Crashed", "Cancelled", "Completed", "Cached"}
    assert [state for name, state in runs["tasks"] if name == "evaluate@i0000"].count("Cancelled") == 2


def test_locks_are_free_and_files_are_whole(stopped):
    workspace, _, _, _ = stopped
    workspace.run("dvc", "repro", "prepare_model")
    assert (workspace.folder / RECORD).exists()


def test_no_process_of_a_run_has_opened_a_connection_but_to_this_machine(stopped):
    _, _, _, connections = stopped
    assert len(connections) > 20  # of the flow with its server
    elsewhere = [line for line in connections if not local(line)]
    assert elsewhere == []


def local(line):
    """A Unix socket, or an address of this machine."""
    _, where = line.split(" ", 1)
    return where.startswith(
        ("('127.0.0.1'", "('::1'", "'data/", "'/", "b'\\x00", "'127.0.0.1'", "'localhost'", "''", "None")
    )
