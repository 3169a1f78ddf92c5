"""Real `kill -9` in the middle of stages; then the same command, and the same final hashes."""

import os
import random
import signal
import subprocess
import time

import psutil
import pytest

STAGES = ("model prepare", "rollout i0001", "score i0001", "update i0001", "evaluate i0000", "advantage i0002")


def wait_for(condition, process, seconds=120):
    """True once the condition holds, False if the process ended before it did."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)
    return True


def started(workspace, stage, before):
    name = stage.split()
    path = workspace.folder / "data" / "logs" / name[1] / f"{name[0]}.jsonl"
    if name[0] == "model":
        path = workspace.folder / "data" / "logs" / "model" / "prepare.jsonl"
    return path.exists() and path.stat().st_size > 0 and path.stat().st_ino != before.get(path)


def stage_processes(workspace):
    return processes(workspace, "pipeline.stage")


def processes(workspace, module):
    """Processes of a module that run in the workspace."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if process.info["cwd"] == str(workspace.folder) and module in (process.info["cmdline"] or [])
    ]


def finish(workspace):
    output = workspace.run("dvc", "repro")
    assert "ERROR" not in output
    return workspace.lock()


@pytest.mark.parametrize("victim", ["everything", "dvc", "stage"])
def test_kill_9_in_the_middle_of_stages_then_the_same_command(new_workspace, reference, victim):
    workspace, rng = new_workspace(), random.Random(victim)
    workspace.plan(2)
    kills = 0
    for stage in STAGES if victim == "everything" else rng.sample(STAGES, 2):
        process = workspace.start("dvc", "repro")
        if wait_for(lambda stage=stage: started(workspace, stage, {}), process):
            time.sleep(rng.uniform(0, 0.4) if "advantage" not in stage else 0)
            if victim == "stage":
                for child in stage_processes(workspace):
                    child.kill()
            elif victim == "dvc":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait(timeout=60)
        assert wait_for_no_stage(workspace)
    assert kills >= 1
    assert finish(workspace) == reference.lock()
    assert not list((workspace.folder / "data" / ".partial").glob("*"))


def wait_for_no_stage(workspace, seconds=5):
    """A stage whose `dvc repro` was killed ends by itself."""
    deadline = time.monotonic() + seconds
    while stage_processes(workspace):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_killing_the_flow_takes_its_worker_along_and_the_next_run_goes_on(new_workspace, reference):
    workspace = new_workspace()
    workspace.plan(2)
    process = workspace.start("rloo", "train")
    assert wait_for(lambda: started(workspace, "update i0001", {}), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    workers = processes(workspace, "pipeline.worker")
    psutil.wait_procs(workers, timeout=5)
    assert not [p for p in workers if p.is_running()]
    with workspace.warm():
        assert finish(workspace) == reference.lock()


def test_a_worker_that_dies_fails_its_stage_with_the_reason(new_workspace):
    workspace = new_workspace()
    workspace.plan(1)
    with workspace.warm():
        (worker,) = processes(workspace, "pipeline.worker")
        process = subprocess.Popen(
            workspace.command("dvc", "repro"),
            cwd=workspace.folder,
            env=workspace.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert wait_for(lambda: started(workspace, "model prepare", {}), process)
        worker.kill()
        output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "the worker died while it ran prepare model" in output


def test_code_that_changes_under_a_warm_worker_is_run_fresh(new_workspace):
    workspace = new_workspace()
    workspace.plan(1)
    with workspace.warm():
        workspace.run("dvc", "repro", "rollout@i0001")
        path = workspace.folder / "stages" / "advantage" / "groups.py"
        path.write_text(path.read_text().replace('"counted"', '"counted, says the new code"'))
        workspace.run("dvc", "repro", "advantage@i0001")
    output = workspace.run(
        "python",
        "-c",
        "import polars; print(polars.read_parquet('data/iterations/i0001/advantages.parquet')['reason'].to_list())",
    )
    assert "says the new code" in output
