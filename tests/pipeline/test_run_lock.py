"""One run at a time in a workspace: who has it, who may enter, and what the others are told."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pipeline.run_lock import HOLDER_VARIABLE, BusyError, at_work, holder, run_lock
from stages.common.processes import identity, lives, own_identity
from tests.workspace import ROOT

HOLD = """
import sys
from pipeline.run_lock import at_work, run_lock
with run_lock("rloo train"):
    print("in", flush=True)
    sys.stdin.readline()
"""
WORK = HOLD.replace('run_lock("rloo train")', "at_work()")
CHILD = """
import subprocess, sys
from pipeline.run_lock import run_lock
with run_lock("rloo train"):
    inner = "from pipeline.run_lock import run_lock\\nwith run_lock('stage'): print('entered')"
    sys.exit(subprocess.run(["sh", "-c", 'exec "$0" -c "$1"', sys.executable, inner]).returncode)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(HOLDER_VARIABLE, raising=False)
    return tmp_path


def started(code, folder):
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "in\n"
    return process


@pytest.fixture
def other(folder):
    """Another process that has the workspace."""
    process = started(HOLD, folder)
    yield process
    process.kill()
    process.wait()


def test_the_second_is_refused_and_told_who_is_at_work(other):
    with (
        pytest.raises(
            BusyError, match=rf"rloo train \(process {other.pid}\) is at work .* since 20.* rloo plan can run"
        ),
        run_lock("rloo plan"),
    ):
        pass


def test_the_lock_is_free_as_soon_as_its_holder_is_killed(other):
    other.kill()
    other.wait()
    with run_lock("rloo train"):
        assert holder()["process"] == own_identity()
    assert holder() == {}


def test_waiting_says_for_what_and_goes_on_when_that_has_ended(other, capfd):
    begun = time.monotonic()
    code = f"import os, time; time.sleep(2.6); os.kill({other.pid}, {signal.SIGKILL})"
    killer = subprocess.Popen([sys.executable, "-c", code])
    with run_lock("rloo train", wait=True):
        assert time.monotonic() - begun > 2.5
    killer.wait()
    assert f"rloo train (process {other.pid}) is at work" in capfd.readouterr().err


def test_the_lock_is_entered_again_by_its_holder_and_by_what_it_starts(folder):
    with run_lock("rloo train"), run_lock("rloo plan"):
        assert holder()["command"] == "rloo train"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", CHILD], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "entered\n")


def test_the_environment_alone_opens_nothing(other, monkeypatch):
    monkeypatch.setenv(HOLDER_VARIABLE, identity(other.pid))
    with pytest.raises(BusyError), run_lock("stage rollout i0001"):
        pass


def test_a_run_begins_when_the_last_process_of_a_killed_one_has_ended(folder):
    left = started(WORK, folder)
    begun = time.monotonic()
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.7; kill -9 {left.pid}"])
    with run_lock("rloo train"):
        assert time.monotonic() - begun > 0.6
    killer.wait()
    left.wait()
    with at_work():
        pass


def test_a_process_is_known_by_its_start_too():
    pid = os.getpid()
    assert lives(identity(pid))
    assert not lives(f"{pid}-1")  # the number was another's
    assert not lives("no process")


WRITERS = (
    ("rloo", "train"),
    ("rloo", "plan", "3"),
    ("rloo", "preset", "grpo"),
    ("rloo", "recipe", "rlhf"),
    ("rloo", "heal"),
    ("rloo", "windows", "open", "w0001"),
    ("rloo", "storage", "prune"),
    ("rloo", "pull"),
    ("rloo", "verify", "--repair"),
)


def test_every_command_that_writes_is_refused_while_a_run_is_on(new_workspace):
    workspace = new_workspace()
    workspace.plan(1)
    process = started(HOLD, workspace.folder)
    try:
        for command in WRITERS:
            assert f"rloo train (process {process.pid}) is at work" in workspace.fail(*command)
        repro = workspace.command("dvc", "repro")
        done = subprocess.run(repro, cwd=workspace.folder, env=workspace.environment, capture_output=True, text=True)
        assert done.returncode
        assert f"prepare sources: rloo train (process {process.pid}) is at work" in done.stderr
        assert not (workspace.folder / "dvc.lock").exists()
    finally:
        process.kill()


def test_two_flows_at_once_one_runs_and_the_other_is_refused_or_waits(new_workspace):
    workspace = new_workspace()
    workspace.plan(1)
    runs = [
        workspace.start("rloo", "train"),
        workspace.start("rloo", "train"),
        workspace.start("rloo", "train", "--wait"),
    ]
    statuses = [run.wait(timeout=300) for run in runs]
    assert sorted(statuses[:2]) in ([0, 1], [1, 1])  # both are refused if the one that waits was first
    assert statuses[2] == 0
    assert "update@i0001" in workspace.lock()
