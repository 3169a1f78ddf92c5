"""A signal that finds Prefect itself at work, between two stages or windows: the run is Cancelled, in a line, all the
same. No stage runs: the flow's parts send the signal to their own process where Prefect asks them for something.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.workspace import ROOT

RUN = """
import os, signal, sys
import pipeline
from pipeline.flows.reporting import begin, reporting
from pipeline.orchestration import brought_up, flow, task
from stages.common.errors import StageError

where, number, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def come(place):
    if place == where:
        os.kill(os.getpid(), number)

class Asked(dict):
    def __init__(self, place):
        super().__init__(place=place)
    def items(self):
        come(self["place"])
        return super().items()

@task(name="stage")
def stage(asked):
    come("stage")
    return "computed"

def name_of_window():
    come("window")
    return name + " window"

def name_of_run():
    come("run")
    return name

@flow(name="window", flow_run_name=name_of_window)
def window():
    brought_up(stage(Asked("between stages")))

@flow(name="run", flow_run_name=name_of_run)
def run():
    window()
    come("between windows")

try:
    with reporting() as api:
        begin(api)
        run()
except StageError as error:
    print(error, file=sys.stderr)
    sys.exit(getattr(error, "status", 1))
"""
LIST = """
from prefect.client.orchestration import get_client
import json
with get_client(sync_client=True) as client:
    print(json.dumps([[run.name, run.state_name, run.state.message] for run in client.read_flow_runs()]))
"""


@pytest.fixture(scope="module")
def python(prefect_server, tmp_path_factory):
    """Runs a script against the server, in a folder of its own."""
    folder = tmp_path_factory.mktemp("unlucky")
    extra = {"PREFECT_API_URL": prefect_server, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(folder / "home")}

    def run(*arguments):
        command = [sys.executable, "-c", *arguments]
        return subprocess.run(command, cwd=folder, env=os.environ | extra, capture_output=True, text=True, timeout=60)

    return run


@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("stage", signal.SIGINT),
        ("between stages", signal.SIGINT),
        ("between stages", signal.SIGTERM),
        ("window", signal.SIGINT),
        ("between windows", signal.SIGTERM),
        ("run", signal.SIGINT),
    ],
)
def test_the_run_is_cancelled_wherever_the_signal_comes(python, where, number):
    name = f"{where} {number.name}"
    done = python(RUN, where, str(int(number)), name)
    assert done.returncode == 128 + number, done.stdout + done.stderr
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.endswith(f"stopped by {number.name}; what is finished stays, and the same command goes on from here")
    flows = {found: state for found, *state in json.loads(python(LIST).stdout) if found.startswith(name)}
    assert flows[name] == ["Cancelled", f"stopped by {number.name}"]
    assert {state for state, _ in flows.values()} <= {"Cancelled", "Completed"}
