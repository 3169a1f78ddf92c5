"""A signal that finds Prefect itself at work, between two stages or windows: the run is Cancelled, in a line, all the
same. No stage runs: the flow's parts send the signal to their own process where Prefect asks them for something.
"""

import os
import signal
import subprocess
import sys

import httpx
import pytest

from tests.workspace import ROOT

RUN = """
import os, signal, sys, time
import pipeline
import prefect
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
    return "window"

def name_of_run():
    come("run")
    return "run"

@flow(name="window", flow_run_name=name_of_window)
def window():
    brought_up(stage(Asked("between stages")))

@flow(name="run", flow_run_name=name_of_run)
def run():
    window()
    come("between windows")

try:
    with reporting() as api, prefect.tags(name):
        begin(api)
        run()
except StageError as error:
    time.sleep(2 if where == "stage" else 0)  # the run sees that its run in Prefect is Cancelled
    print(error, file=sys.stderr)
    sys.exit(getattr(error, "status", 1))
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
        ("run", signal.SIGINT),
    ],
)
def test_the_run_is_cancelled_wherever_the_signal_comes(python, prefect_server, where, number):
    name = f"{where} {number.name}"
    done = python(RUN, where, str(int(number)), name)
    assert done.returncode == 128 + number, done.stdout + done.stderr
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.endswith(f"stopped by {number.name}; what is finished stays, and the same command goes on from here")
    tagged = {"flow_runs": {"tags": {"all_": [name]}}}
    flows = httpx.post(f"{prefect_server}/flow_runs/filter", json=tagged, timeout=30).json()
    states = {(run["state"]["name"], run["state"]["message"]) for run in flows}
    assert states == {("Cancelled", f"stopped by {number.name}")}
