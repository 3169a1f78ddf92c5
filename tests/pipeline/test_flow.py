"""`rloo train`: the same bytes as `dvc repro`, one Prefect task per stage, artifacts, honest failures."""

import json
import os
import pty
import shutil
import termios
from contextlib import suppress

import pytest

LIST_RUNS = """
import asyncio, json
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter

async def main():
    async with get_client() as client:
        flows = await client.read_flow_runs()
        tasks = await client.read_task_runs()
        artifacts = await client.read_artifacts()
        logs = await client.read_logs()
        print(json.dumps({
            "flows": {run.name: run.state_name for run in flows},
            "tasks": {run.name: run.state_name for run in tasks},
            "logs": [log.message for log in logs],
            "artifacts": sorted({a.key for a in artifacts}),
            "markdown": next((a.data for a in artifacts if a.key == "rloo-completions"), ""),
            "largest_result": max(len(json.dumps(run.model_dump(mode="json"))) for run in [*flows, *tasks]),
        }))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def flow_workspace(bare_workspace):
    made = bare_workspace()
    made.plan(1)
    made.run("rloo", "train", "--iterations", "2")
    return made


def prefect_runs(workspace):
    lines = workspace.run("python", "-c", LIST_RUNS).splitlines()
    return json.loads(next(line for line in lines if line.startswith("{")))


def test_the_flow_gives_the_hashes_of_dvc_repro(flow_workspace, reference):
    assert flow_workspace.lock() == reference.lock()


def test_dvc_has_nothing_left_to_do_after_the_flow(flow_workspace):
    assert flow_workspace.nothing_to_do(flow_workspace.run("dvc", "repro"))


def test_a_run_with_nothing_to_compute_imports_no_library_of_models(flow_workspace, tmp_path, monkeypatch):
    for name in ("torch", "transformers", "peft"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('imported')")
    monkeypatch.setitem(flow_workspace.extra, "PYTHONPATH", f"{tmp_path}{os.pathsep}{flow_workspace.folder}")
    before = flow_workspace.starts()
    assert "22 unchanged" in flow_workspace.run("rloo", "train")
    assert flow_workspace.computed_since(before) == set()


def on_terminal(workspace, *command):
    """What a command that succeeds writes to a terminal."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (30, 120))  # a terminal without a size is shown no bars
    process = workspace.start(*command, output=its)
    os.close(its)
    seen = b""
    with suppress(OSError):  # nobody has the terminal open any more
        while chunk := os.read(ours, 1 << 16):
            seen += chunk
    os.close(ours)
    assert process.wait() == 0
    return seen.decode(errors="replace")


def test_bars_of_dvc_do_not_lie_among_the_lines_of_a_run(flow_workspace):
    seen = on_terminal(flow_workspace, "rloo", "train")
    assert "unchanged" in seen
    assert "Checking cache" not in seen
    assert "files/s" not in seen


def test_a_library_that_is_broken_is_named_with_the_remedy(bare_workspace, tmp_path, monkeypatch):
    workspace = bare_workspace()
    (tmp_path / "transformers.py").write_text("raise ImportError('libnothing.so.1: cannot open')")
    monkeypatch.setitem(workspace.extra, "PYTHONPATH", f"{tmp_path}{os.pathsep}{workspace.folder}")
    output = workspace.fail("rloo", "train").replace("\n", " ")
    assert "stages.prepare.model cannot be imported: ImportError: libnothing.so.1: cannot open" in output
    assert "make setup" in output


def test_prefect_knows_one_task_per_stage_and_holds_the_artifacts(flow_workspace, reference):
    found = prefect_runs(flow_workspace)
    assert found["flows"] == {"2-iterations": "Completed", "w0001: i0001 to i0002": "Completed"}
    stages = {name: state for name, state in found["tasks"].items() if not name.startswith("rloo-window")}
    assert stages == dict.fromkeys(reference.lock(), "Completed")
    assert {"rloo-metrics", "rloo-completions", "rloo-files", "rloo-history"} <= set(found["artifacts"])
    assert any(line.startswith("task reward") for line in found["logs"])  # what the stage `score` says of its work
    assert found["largest_result"] < 10_000
    assert "## Best of i000" in found["markdown"]
    assert "advantage" in found["markdown"]


def test_dvc_and_the_flow_finish_what_the_other_began(bare_workspace, reference):
    workspace = bare_workspace()
    workspace.plan(2)
    with workspace.warm():
        workspace.run("dvc", "repro", "score@i0001")
    before = workspace.starts()
    output = workspace.run("rloo", "train")
    assert workspace.lock() == reference.lock()
    assert "rollout i0001" not in workspace.computed_since(before)
    found = prefect_runs(workspace)["tasks"]
    assert (found["rollout@i0001"], found["update@i0001"]) == ("Cached", "Completed")
    assert "i0002  held-out reward" in output


def test_a_stage_that_fails_fails_the_flow_with_its_reason(bare_workspace):
    workspace = bare_workspace()
    workspace.plan(1)
    workspace.change("policy.lora.targets", ["nonsense"])
    output = workspace.fail("rloo", "train")
    assert "prepare_options: params.yaml: policy.lora.targets = ['nonsense']" in output
    assert set(prefect_runs(workspace)["flows"].values()) == {"Failed"}
    assert not (workspace.folder / "data/iterations").exists()


def test_full_fine_tuning_trains_and_both_doors_agree(new_workspace):
    first, second = new_workspace(), new_workspace()
    for workspace in (first, second):
        workspace.change("policy.method", "full")
        workspace.plan(2)
    first.run("rloo", "train")
    with second.warm():
        second.run("dvc", "repro", "update@i0002")
    for stage, outs in second.lock().items():
        assert first.lock()[stage] == outs
    lock = first.lock()
    assert lock["update@i0002"]["data/policies/i0002"] != lock["update@i0001"]["data/policies/i0001"]
    assert lock["prepare_policy"]["data/policies/i0000"] == lock["sft_policy"]["data/reference"]
    shutil.rmtree(second.folder)
