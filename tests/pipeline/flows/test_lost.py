"""A run that loses its server, its worker, or the server that a reward depends on: what can be mended is, and is told.

One workspace and two runs: the first loses both processes on its way and ends with the hashes of the undisturbed run.
"""

import json
import socket
import time

import psutil
import pytest

LIST = """
from prefect.client.orchestration import get_client
import json
with get_client(sync_client=True) as client:
    flows = [[run.name, run.state_name, run.state.message] for run in client.read_flow_runs()]
    tasks = [[run.name, run.state_name, run.run_count] for run in client.read_task_runs()]
    logs = [log.message for log in client.read_logs()]
print(json.dumps({"flows": flows, "tasks": tasks, "logs": logs}))
"""


def told(workspace):
    """What Prefect's database has of the runs."""
    lines = workspace.run("python", "-c", LIST).splitlines()
    return json.loads(next(line for line in lines if line.startswith("{")))


def kill(workspace, run, module, stage):
    """Kill the process of that module, by SIGKILL, as soon as the stage works."""
    journal = workspace.folder / "data" / "logs" / stage.split()[1] / f"{stage.split()[0]}.jsonl"
    deadline = time.monotonic() + 120
    while not (journal.exists() and journal.stat().st_size):
        assert run.poll() is None, "the run has ended"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)
    for child in psutil.Process(run.pid).children():
        if module in child.cmdline():
            child.kill()
            return
    raise AssertionError(f"no {module}")


@pytest.fixture(scope="module")
def disturbed(bare_workspace, tmp_path_factory):
    """A run whose temporary server is killed at the first evaluation, and whose worker is in the middle of another."""
    workspace = bare_workspace()
    workspace.plan(2)
    log = tmp_path_factory.mktemp("output") / "log"
    with log.open("wb") as output:
        run = workspace.start("rloo", "train", output=output)
        kill(workspace, run, "pipeline.flows.server_process", "evaluate i0000")
        kill(workspace, run, "pipeline.worker", "rollout i0002")
        status = run.wait(180)
    return workspace, status, log.read_text(), told(workspace)


def test_a_run_goes_on_without_its_server_and_its_worker(disturbed, reference):
    workspace, status, output, _ = disturbed
    assert status == 0, output
    assert workspace.lock() == reference.lock()
    assert "Traceback" not in output


def test_what_was_lost_is_on_the_screen_and_in_the_log(disturbed):
    _, _, output, runs = disturbed
    assert "rloo: the temporary Prefect server was lost (status -9); another one starts" in output
    assert "rollout@i0002" in output
    assert "killed by signal 9 (SIGKILL)" in output.replace("\n", " ")
    assert "it is tried again" in output.replace("\n", " ")
    assert any("killed by signal 9 (SIGKILL)" in line for line in runs["logs"])


def test_prefect_has_the_whole_run(disturbed):
    _, _, _, runs = disturbed
    assert {state for _, state, _ in runs["flows"]} == {"Completed"}
    tries = {name: (state, count) for name, state, count in runs["tasks"]}
    assert tries["rollout@i0002"] == ("Completed", 2)
    assert tries["history"] == ("Completed", 1)


def test_a_reward_server_that_is_lost_is_asked_again_and_then_the_run_has_failed(disturbed):
    workspace, _, _, _ = disturbed
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/score"
    reward = {"function": "stages.score.http_reward:http_reward", "weight": 1.0, "arguments": {"url": url, "tries": 1}}
    workspace.change("score.rewards.asked", reward)
    output = workspace.fail("rloo", "train")
    assert output.count("it is tried again") == 2
    assert url in output.replace("\n", "")
    runs = told(workspace)
    tries = {(name, state, count) for name, state, count in runs["tasks"]}
    assert ("evaluate@i0000", "Failed", 3) in tries
    assert any(state == "Failed" and url in message for name, state, message in runs["flows"])
