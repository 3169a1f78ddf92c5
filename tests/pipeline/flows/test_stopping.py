"""Signals reach a run while its work waits; what it started is gone, and the exit status says which it was."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.workspace import ROOT

RUN = """
import subprocess, sys, time
import pipeline
from pipeline.flows import stopping
from pipeline.orchestration import apart
from prefect.exceptions import TerminationSignal

def work():
    inner = "import time; print(1, flush=True); time.sleep(60)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    child = subprocess.Popen([sys.executable, "-c", outer])
    child.wait()
    print("the work has put its files in order", flush=True)

stopping.listen()
try:
    apart(work)
except TerminationSignal as signal:
    stopping.stopping(signal.signal)
    error = stopping.RunStoppedError()
    print(error, flush=True)
    sys.exit(error.status)
"""
AFTERWARDS = """
import os, signal
from pipeline import cli
from pipeline.flows import stopping

@cli.app.command()
def tables():
    stopping.listen()
    os.kill(os.getpid(), signal.SIGINT)

cli.main(["tables"])
"""


@pytest.fixture
def running():
    run = subprocess.Popen(
        [sys.executable, "-c", RUN],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout.readline() == "1\n"
    yield run
    if run.poll() is None:
        run.kill()


@pytest.mark.parametrize(
    ("number", "to_group"), [(signal.SIGINT, False), (signal.SIGINT, True), (signal.SIGTERM, False)]
)
def test_a_signal_ends_the_work_in_order(running, number, to_group):
    children = psutil.Process(running.pid).children(recursive=True)
    assert len(children) == 2
    began = time.monotonic()
    if to_group:
        os.killpg(running.pid, number)
    else:
        running.send_signal(number)
    output, _ = running.communicate(timeout=10)
    assert running.returncode == 128 + number
    assert time.monotonic() - began < 10
    _, alive = psutil.wait_procs(children, timeout=1)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    first, second = output.splitlines()
    assert first == "the work has put its files in order"
    assert second == f"stopped by {number.name}; what is finished stays, and the same command goes on from here"


def test_a_signal_while_a_command_shows_what_came_out_is_a_line_too():
    done = subprocess.run([sys.executable, "-c", AFTERWARDS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == "rloo: stopped by SIGINT; what is finished stays, and the same command goes on from here\n"
