"""`rloo rescore` and `rloo diff` on a trained tiny workspace: the same bytes as the stages make, and no byte twice."""

import copy
import json
import os
import shutil
import signal
import time
from pathlib import Path

import polars as pl
import pytest
from rich.cells import cell_len

from tests.manifests import finish

MINE = '''"""Rewards that differ on random text."""

import time
from pathlib import Path

CALLS = Path(__file__).resolve().parents[2] / "calls"


def brief(completion_ids, scale=1.0, **columns):
    with CALLS.open("a") as file:
        file.write(".")
    return [scale * (sum(ids) % 5) / len(ids) for ids in completion_ids]


def some(completion_ids, **columns):
    return [None if sum(ids) % 4 == 0 else float(sum(ids) % 3) for ids in completion_ids]


def waits(completion_ids, iteration, **columns):
    """Of the second iteration only once there is a file `go`."""
    while iteration[0] == 2 and not CALLS.with_name("go").exists():
        time.sleep(0.05)
    return [float(len(ids)) for ids in completion_ids]


def half_broken(completion_ids, **columns):
    return [float("nan") if n % 2 else 1.0 for n, _ in enumerate(completion_ids)]
'''

REWARDS = """rewards:
  brief: {function: "stages.score.mine:brief", weight: 0.5, arguments: {scale: 2.0}}
  some: {function: "stages.score.mine:some"}
"""
ITERATIONS = ("i0001", "i0002")


def copied(workspace, folder):
    """The same project, to be changed."""
    shutil.copytree(workspace.folder, folder, symlinks=True)
    made = copy.copy(workspace)
    made.folder, made.params, made.extra = folder, copy.deepcopy(workspace.params), {}
    (folder / "stages/score/mine.py").write_text(MINE)
    (folder / "mine.yaml").write_text(REWARDS)
    return made


@pytest.fixture(scope="module")
def workspace(reference, tmp_path_factory):
    return copied(reference, tmp_path_factory.mktemp("rescore") / "project")


@pytest.fixture(scope="module")
def rescored(workspace):
    """Both iterations under the name `mine`, and what was said."""
    return workspace.run("rloo", "rescore", "mine", "--rewards", "mine.yaml")


def bytes_of(workspace, name):
    return {
        str(path.relative_to(workspace.folder / "data/rescored" / name)): path.read_bytes()
        for path in sorted((workspace.folder / "data/rescored" / name).rglob("*"))
        if path.is_file()
    }


def times_of(workspace, name):
    folder = workspace.folder / "data/rescored" / name
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def table(workspace, name, iteration, which):
    return pl.read_parquet(workspace.folder / f"data/rescored/{name}/{iteration}/{which}.parquet")


def by_stages(workspace, folder, rewards, **changes):
    """Both tables of both iterations, by the stages themselves with these rewards in params.yaml."""
    made = copied(workspace, folder)
    made.change("score.rewards", rewards)
    for key, value in changes.items():
        made.change(key.replace("__", "."), value)
    with made.warm():
        for iteration in ITERATIONS:
            for stage in ("score", "advantage"):
                made.run("python", "-m", "pipeline.stage", stage, iteration)
    return {
        f"{iteration}/{which}.parquet": (made.folder / f"data/iterations/{iteration}/{which}.parquet").read_bytes()
        for iteration in ITERATIONS
        for which in ("scores", "advantages")
    }


def test_functions_need_no_library_of_models(workspace, rescored, tmp_path, monkeypatch):
    for name in ("torch", "transformers", "peft"):
        (tmp_path / f"{name}.py").write_text("raise AssertionError('imported')")
    monkeypatch.setitem(workspace.extra, "PYTHONPATH", f"{tmp_path}{os.pathsep}{workspace.folder}")
    workspace.run("rloo", "rescore", "light", "--rewards", "mine.yaml")
    for iteration in ITERATIONS:
        assert table(workspace, "light", iteration, "scores").equals(table(workspace, "mine", iteration, "scores"))


IN_PARAMS = {
    "brief": {"function": "stages.score.mine:brief", "weight": 0.5, "arguments": {"scale": 2.0}},
    "some": {"function": "stages.score.mine:some"},
}


def test_the_tables_are_those_that_the_stages_make(workspace, rescored, tmp_path):
    expected = by_stages(workspace, tmp_path / "by_stages", IN_PARAMS)
    found = bytes_of(workspace, "mine")
    assert {name: found[name] for name in expected} == expected
    assert table(workspace, "mine", "i0001", "scores")["reward/some"].null_count() > 0  # rows are not all alike


def test_a_moving_average_goes_on_through_the_rescored_iterations(workspace, tmp_path):
    made = copied(workspace, tmp_path / "average")
    made.change("advantage.estimator", "moving_average")
    made.run("rloo", "rescore", "average", "--rewards", "mine.yaml")
    expected = by_stages(workspace, tmp_path / "by_stages", IN_PARAMS, advantage__estimator="moving_average")
    found = bytes_of(made, "average")
    assert {name: found[name] for name in expected} == expected
    output = made.fail("rloo", "rescore", "late", "--rewards", "mine.yaml", "--iterations", "i0002")
    assert "moving_average carries on from i0001, which is not scored with these rewards; give i0001-i0002" in output
    made.run("rloo", "rescore", "late", "--rewards", "mine.yaml", "--iterations", "i0001")
    made.run("rloo", "rescore", "late", "--rewards", "mine.yaml", "--iterations", "i0002")
    assert {name: bytes_of(made, "late")[name] for name in expected} == expected


def test_nothing_is_sampled_and_nothing_of_the_run_is_touched(workspace, rescored, reference):
    for name in ("iterations", "policies", "optimizer"):
        for path in (reference.folder / "data" / name).rglob("*"):
            if path.is_file():
                assert (workspace.folder / path.relative_to(reference.folder)).read_bytes() == path.read_bytes()
    assert workspace.run("dvc", "status", "rollout@i0001") == reference.run("dvc", "status", "rollout@i0001")


def test_the_manifest_says_what_the_tables_are_made_of(workspace, rescored):
    found = json.loads((workspace.folder / "data/rescored/mine/rewards.json").read_text())
    assert found["rewards"]["brief"]["arguments"] == {"scale": 2.0}
    assert found["order"] == ["brief", "some"]
    assert found["behind"]["brief"]["code"] == "stages.score"
    assert found["advantage"]["estimator"] == "rloo"
    assert found["kl"] == {"beta": 0.04, "placement": "reward"}
    assert list(found["iterations"]) == list(ITERATIONS)
    assert {"rollouts", "prompts", "scores", "stages/score"} < set(found["iterations"]["i0001"]["inputs"])
    assert "time" not in str(found).replace("timeout", "")


def test_the_same_command_again_computes_nothing(workspace, rescored):
    before, calls = times_of(workspace, "mine"), (workspace.folder / "calls").stat().st_size
    output = workspace.run("rloo", "rescore", "mine", "--rewards", "mine.yaml")
    assert "0 iterations scored, 2 were up to date" in output
    assert times_of(workspace, "mine") == before
    assert (workspace.folder / "calls").stat().st_size == calls


def test_what_is_shown(workspace, rescored):
    assert "2 iterations scored, 0 were up to date" in rescored
    frames = [table(workspace, "mine", iteration, "scores") for iteration in ITERATIONS]
    old = [pl.read_parquet(workspace.folder / f"data/iterations/{one}/scores.parquet") for one in ITERATIONS]
    line = next(line for line in rescored.splitlines() if "│ all " in line)
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    assert cells[1] == "18"
    assert cells[2] == f"{pl.concat(old)['task_reward'].mean():.3f}"
    assert cells[3] == f"{pl.concat(frames)['task_reward'].mean():.3f}"
    missing = sum(frame["reward/some"].null_count() for frame in frames)
    (told,) = [line for line in rescored.splitlines() if "missing" in line]
    assert told.split("│")[3].strip() == str(missing)
    assert max(map(cell_len, rescored.splitlines())) <= 120


def test_only_an_iteration_whose_rollouts_have_changed_is_computed_again(workspace, tmp_path):
    made = copied(workspace, tmp_path / "project")
    made.run("rloo", "rescore", "mine", "--rewards", "mine.yaml")
    before = times_of(made, "mine")
    path = made.folder / "data/iterations/i0002/rollouts.parquet"
    frame = pl.read_parquet(path)
    path.unlink()
    frame.with_columns(completion=pl.lit("changed")).write_parquet(path)
    finish(made.folder, "rollout", "i0002", path.relative_to(made.folder))
    assert "rescored/mine/i0002 was made of other rollouts" in made.fail("rloo", "diff", "scores", "mine")
    assert "1 iterations scored, 1 were up to date" in made.run("rloo", "rescore", "mine", "--rewards", "mine.yaml")
    changed = {Path(path).parent.name for path, when in times_of(made, "mine").items() if before[path] != when}
    assert changed == {"i0002", "mine"}


def test_changed_rewards_are_refused_unless_overwritten(workspace, tmp_path):
    made = copied(workspace, tmp_path / "project")
    command = ("rloo", "rescore", "mine", "--rewards", "mine.yaml")
    made.run(*command)
    before = bytes_of(made, "mine")
    (made.folder / "mine.yaml").write_text(REWARDS.replace("0.5", "0.25"))
    output = made.fail(*command)
    assert "was made with something else (rewards.brief.weight)" in output
    assert "--overwrite" in output
    (made.folder / "mine.yaml").write_text(REWARDS)
    path = made.folder / "stages/score/mine.py"
    path.write_text(MINE.replace("% 5", "% 6"))
    assert "(behind.brief.sha256, behind.some.sha256)" in made.fail(*command)
    assert bytes_of(made, "mine") == before
    made.run(*command, "--iterations", "i0002", "--overwrite")
    after = bytes_of(made, "mine")
    assert not any(name.startswith("i0001") for name in after)  # those of the old code are gone
    assert after["i0002/scores.parquet"] != before["i0002/scores.parquet"]


def test_kill_9_between_iterations_and_the_same_command_goes_on(workspace, tmp_path):
    made = copied(workspace, tmp_path / "project")
    arguments = ("--rewards", "stages.score.mine:waits", "--rewards", "stages.score.mine:brief")
    process = made.start("rloo", "rescore", "waits", *arguments)
    first = made.folder / "data/rescored/waits/i0001/made_of.json"
    deadline = time.monotonic() + 60
    while not first.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)  # it is in the second iteration now, and waits
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = times_of(made, "waits")
    assert {Path(path).parent.name for path in before} == {"i0001"}  # and no rewards.json, which comes last
    other = made.fail("rloo", "rescore", "waits", "--rewards", "stages.score.varied:varied")
    assert "i0001 was made with something else (behind.brief, behind.varied" in other
    (made.folder / "go").touch()
    assert "1 iterations scored, 1 were up to date" in made.run("rloo", "rescore", "waits", *arguments)
    assert {path: times_of(made, "waits")[path] for path in before} == before
    made.run("rloo", "rescore", "undisturbed", *arguments)
    assert bytes_of(made, "waits") == bytes_of(made, "undisturbed")
    assert not list((made.folder / "data/.partial").iterdir())


def test_too_many_failures_stop_it_and_name_the_first_row(workspace):
    output = workspace.fail("rloo", "rescore", "broken", "--rewards", "stages.score.mine:half_broken")
    assert "max_failed" in output
    assert "half_broken" in output
    assert not (workspace.folder / "data/rescored/broken").exists()


def test_diff_with_a_rescored_set(workspace, rescored, tmp_path):
    output = workspace.run("rloo", "diff", "scores", "mine", "--count", "2", "--out", "changes.parquet")
    frame = pl.read_parquet(workspace.folder / "changes.parquet")
    assert frame.height == 18
    assert frame["reason"].unique().to_list() == ["reward"]  # no name of a reward is the same
    (line,) = [line for line in output.splitlines() if line.startswith("│ all ")]
    cells = [cell.strip() for cell in line.strip("│").split("│")]
    expected = [frame.height, *(frame[c].sum() for c in ("score_changed", "advantage_changed"))]
    assert cells[1:4] == [str(number) for number in expected]
    largest = frame.sort(pl.col("advantage_change").abs(), descending=True).head(2)
    for prompt in largest["prompt_id"]:
        assert prompt in output
    assert max(map(cell_len, output.splitlines())) <= 120
    workspace.run("rloo", "diff", "mine@i0002", "scores", "--count", "0", "--out", "back.csv")
    back = pl.read_csv(workspace.folder / "back.csv").sort("prompt_id", "sample")
    there = frame.filter(iteration=2).sort("prompt_id", "sample")
    assert back.height == 9
    assert (back["advantage_change"] + there["advantage_change"]).abs().max() == 0.0
    assert back["score_a"].to_list() == there["score_b"].to_list()


def test_diff_of_the_same_rewards_finds_nothing(workspace):
    names = [f"--rewards={one['function']}" for one in workspace.params["score"]["rewards"].values()]
    renamed = workspace.folder / "same.yaml"
    renamed.write_text(json.dumps(workspace.params["score"]["rewards"]))
    assert len(names) == 2
    workspace.run("rloo", "rescore", "same", "--rewards", "same.yaml")
    output = workspace.run("rloo", "diff", "scores", "same")
    assert "unchanged" in output
    assert "Largest changes" not in output


def test_diff_of_two_estimators_on_the_same_rewards(workspace, rescored, tmp_path):
    made = copied(workspace, tmp_path / "project")
    made.change("advantage.estimator", "grpo")
    made.run("rloo", "rescore", "mine_grpo", "--rewards", "mine.yaml", "--iterations", "i0001")
    output = made.run("rloo", "diff", "mine", "mine_grpo", "--out", "changes.csv")
    assert "9 rows of i0001 " in output  # of the iteration that both have
    frame = pl.read_csv(made.folder / "changes.csv")
    assert set(frame["reason"]) <= {"estimator", "unchanged"}
    assert not frame["score_changed"].any()
    assert frame["detail"].drop_nulls().unique().to_list() == ["rloo -> grpo"]


def test_rows_of_a_rescored_set_are_shown(workspace, rescored):
    output = workspace.run("rloo", "show", "rows", "i0001", "--scores", "mine", "--count", "1")
    assert "some" in output
    assert "varied" not in output
    assert "no tables called 'other'" in workspace.fail("rloo", "show", "rows", "i0001", "--scores", "other")
