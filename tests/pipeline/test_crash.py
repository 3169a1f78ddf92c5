"""Real kills in the middle of stages; then the same command, and the same final hashes."""

import json
import signal
import subprocess
import time

import psutil
import pytest

from tests.kills.lane import Lane, run
from tests.kills.traces import durations, hashes


def wait_for(condition, process, seconds=120):
    """True once the condition holds, False if the process ended before it did."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.001)
    return True


def journal(workspace, stage):
    """Events of a stage, such as `update i0001`, and when it started."""
    room, name = stage.split()
    path = workspace.folder / "data" / "logs" / name / f"{room}.jsonl"
    if not path.exists() or not path.stat().st_size:
        return None, []
    records = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return records[0]["time"], [record["event"] for record in records]


def at_work(workspace, stage, before):
    """Past the imports: the stage reports progress, or writes a file that is not published yet."""
    start, events = journal(workspace, stage)
    if start is None or start == before:
        return False
    return "progress" in events or any((workspace.folder / "data" / ".partial").glob("*"))


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


@pytest.mark.parametrize(("variant", "kills", "chance"), [("repro", 6, 0.35), ("train", 2, 0.25)])
def test_a_run_that_is_killed_at_random_moments_ends_with_the_same_hashes(
    bare_workspace, reference, variant, kills, chance
):
    """The short form of `python -m tests.kills`."""
    workspace = bare_workspace()
    workspace.plan(2)
    lane = Lane(variant, workspace, seed=0, each=1, chance=chance, warm=variant == "repro")
    lane.usual, lane.hashes = durations(reference), hashes(reference)
    run(lane, kills)
    assert lane.violations == []
    assert len(lane.kills) == kills
    assert not list((workspace.folder / "data" / ".partial").glob("*"))


def test_killing_the_flow_takes_its_worker_along_and_the_next_run_goes_on(bare_workspace, reference):
    workspace = bare_workspace()
    workspace.plan(2)
    process = workspace.start("rloo", "train")
    assert wait_for(lambda: at_work(workspace, "update i0001", None), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    workers = processes(workspace, "pipeline.worker")
    psutil.wait_procs(workers, timeout=5)
    assert not [p for p in workers if p.is_running()]
    assert not processes(workspace, "pipeline.flows.server_process")
    with workspace.warm():
        assert finish(workspace) == reference.lock()


def test_a_worker_that_dies_fails_its_stage_with_the_reason(bare_workspace):
    workspace = bare_workspace()
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
        assert wait_for(lambda: journal(workspace, "prepare model")[0] is not None, process)
        worker.kill()
        output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "the worker died while it ran prepare model" in output


def test_code_that_changes_under_a_warm_worker_is_run_fresh(bare_workspace):
    workspace = bare_workspace()
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
