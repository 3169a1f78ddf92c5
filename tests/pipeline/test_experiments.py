"""`dvc exp`: estimators compared on the same rollouts, in the workspace and in the queue; keeping one of them."""

import csv
import io
import re
import subprocess
import time

import pytest

from tests.long_run import commit, lock_of

WHO = ("user.name", "user.email")
QUEUE_SECONDS = 300


def rows(workspace):
    """`dvc exp show` by name of the experiment."""
    text = workspace.run("dvc", "exp", "show", "--only-changed", "--csv")
    return {
        row["Experiment"] or row["rev"]: row for row in csv.DictReader(io.StringIO(text[text.index("Experiment,") :]))
    }


def wait_for_queue(workspace):
    deadline = time.monotonic() + QUEUE_SECONDS
    while re.search(r"Queued|Running", workspace.run("dvc", "queue", "status")):
        assert time.monotonic() < deadline, workspace.run("dvc", "queue", "logs", "raft")
        time.sleep(1)


@pytest.fixture(scope="module")
def experiments(new_workspace):
    """A baseline, `grpo` in the workspace, `raft` in the queue."""
    workspace = new_workspace()
    for option in WHO:
        workspace.run("git", "config", option, "t@example.org")
    workspace.plan(1)
    with workspace.warm():
        workspace.run("dvc", "repro")
        commit(workspace, "baseline")
        workspace.before = workspace.starts()
        workspace.run("dvc", "exp", "run", "-n", "grpo", "-S", "advantage.estimator=grpo")
        workspace.after = workspace.computed_since(workspace.before)
    workspace.run("git", "stash", "-q")  # the baseline's params and lock
    workspace.run("dvc", "exp", "run", "--queue", "-n", "raft", "-S", "advantage.estimator=raft")
    workspace.run("dvc", "queue", "start")
    wait_for_queue(workspace)
    return workspace


def test_an_experiment_samples_and_scores_nothing_that_the_baseline_has(experiments):
    assert {"advantage i0001", "update i0001", "evaluate i0001", "history i0001"} <= experiments.after
    assert not experiments.after & {"rollout i0001", "score i0001", "evaluate i0000", "prepare model"}


def test_the_queue_takes_stages_from_the_cache_that_the_workspace_filled(experiments):
    log = experiments.run("dvc", "queue", "logs", "raft")
    ran = re.findall(r"Running stage '(.*)'", log)
    assert ran[:1] == ["prepare_sources"]
    assert {"advantage@i0001", "update@i0001", "evaluate@i0001", "history"} <= set(ran)
    assert not {"prepare_model", "prepare_prompts", "rollout@i0001", "score@i0001", "evaluate@i0000"} & set(ran)


def test_the_table_of_experiments_has_the_summary_and_what_was_changed(experiments):
    found = rows(experiments)
    estimators = {name: row["advantage.estimator"] for name, row in found.items()}
    assert estimators | {"grpo": "grpo", "raft": "raft", "master": "rloo"} == estimators
    columns = set(found["grpo"])
    assert {"eval/reward", "eval/gain", "eval/kl"} <= columns  # and others that differ between experiments
    assert not [name for name in columns if "eval.json" in name or "judge.json" in name]
    assert len([name for name in columns if not name.startswith("data/")]) < 25


def test_metrics_params_and_plots_of_whole_runs_are_compared(experiments):
    diff = experiments.run("dvc", "metrics", "diff", "--all", "master", "grpo")
    assert {line.split()[0] for line in diff.splitlines()[1:]} == {"data/summary.json"}
    assert "advantage.estimator" in experiments.run("dvc", "params", "diff", "master", "grpo")
    experiments.run("dvc", "plots", "diff", "master", "grpo", "raft", "-o", "plots")
    page = (experiments.folder / "plots" / "index.html").read_text()
    for title in ("Task reward per iteration", "KL to the reference, nats per sequence"):
        assert title in page
    for name in ("master", "grpo", "raft"):
        assert f'"rev": "{name}"' in page


def test_an_experiment_is_kept_by_applying_it_or_as_a_branch(experiments):
    baseline = lock_of(experiments)
    before = experiments.starts()
    applied = subprocess.run(
        experiments.command("dvc", "exp", "apply", "raft"),
        cwd=experiments.folder,
        env=experiments.environment,
        capture_output=True,
        text=True,
    )
    missing = [line for line in applied.stderr.splitlines() if line.startswith("data/")]
    assert all(line.startswith("data/studies/") for line in missing), missing  # of studies that have not run here
    assert lock_of(experiments)["update@i0001"] != baseline["update@i0001"]
    with experiments.warm():
        output = experiments.run("dvc", "repro")
    assert experiments.nothing_to_do(output), output
    assert experiments.computed_since(before) == set()
    experiments.run("dvc", "exp", "branch", "grpo", "with-grpo")
    shown = experiments.run("git", "show", "with-grpo:params.yaml")
    assert "estimator: grpo" in shown
    files = experiments.run("git", "ls-tree", "-r", "--name-only", "with-grpo")
    assert not [name for name in files.splitlines() if name.startswith("data/")]


def test_a_path_that_only_the_workspace_has_fails_the_experiment_with_its_name(experiments):
    (experiments.folder / "mine.jsonl").write_text('{"prompt": "a?"}\n{"prompt": "b?"}\n')
    options = (
        "-S",
        "prepare.prompts.embedded=null",
        "-S",
        "prepare.prompts.file={train: mine.jsonl, heldout_prompts: 1}",
    )
    refused = subprocess.run(
        experiments.command("dvc", "exp", "run", "--temp", *options, "prepare_sources"),
        cwd=experiments.folder,
        env=experiments.environment,
        capture_output=True,
        text=True,
    )
    assert refused.returncode
    assert "prepare.prompts.file.train = 'mine.jsonl': no such file" in refused.stdout + refused.stderr
    experiments.run("dvc", "exp", "run", "--temp", "-C", "mine.jsonl", *options, "prepare_sources")
