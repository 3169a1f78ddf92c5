"""`rloo check`: what it finds, that it finds all of it at once, and that it leaves the project as it was."""

import hashlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from pipeline.check import current
from pipeline.check.findings import Finding, attempt, worst
from pipeline.check.reduced import reduced, with_rewards
from pipeline.check.workspace import fill, outputs_of
from stages.common.errors import StageError
from stages.common.params import ParamsError
from stages.common.params_file import load_params

ROOT = Path(__file__).parents[2]
MY_REWARDS = '''"""Rewards of a user."""


def nothing(completions, **columns):
    return [None for _ in completions]


def raising(completions, **columns):
    raise RuntimeError("on purpose")


def flat(completions, **columns):
    return [0.5 for _ in completions]


def words(completions, low=0.0, **columns):
    return [low + len(text.split()) % 3 / 2 for text in completions]
'''


def tree(folder):
    """Hash of every file of `data`, but of what only commands that run leave there."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "data").rglob("*"))
        if path.is_file() and not {".partial", ".cache"} & set(path.relative_to(folder).parts)
    }


def partial(folder):
    return [path.name for path in (folder / "data" / ".partial").glob("*")]


@pytest.fixture(scope="module")
def project(new_workspace):
    made = new_workspace()
    made.plan(4)
    (made.folder / "stages" / "score" / "mine.py").write_text(MY_REWARDS)
    return made


@pytest.fixture
def workspace(project):
    """The project, whose params are as they were after the test."""
    before = json.loads(json.dumps(project.params))
    yield project
    project.params = before
    project.write_params()


@pytest.fixture(scope="module")
def good(project):
    before = tree(project.folder)
    page = project.run("rloo", "check", "--out", "page.md")
    assert tree(project.folder) == before
    return page


def flat_text(page):
    """The page without the breaks of its lines."""
    return " ".join(page.split())


def findings(page):
    return flat_text(page.split("Findings")[1])


def reward(workspace, name, **options):
    function = f"stages.score.mine:{name}"
    workspace.params["score"]["rewards"] = {"mine": {"function": function, **options}}
    workspace.write_params()


def test_a_good_run_has_no_errors_and_every_section(good):
    for title in ("Model", "Prompts", "Rewards", "Samples of the dry run", "Findings", "Estimate of the whole run"):
        assert title in good
    assert "0 errors" in good
    assert "ERROR" not in good


def test_it_shows_a_rendered_prompt_and_what_became_of_the_rows(good):
    assert "<|user|>" in good
    assert "<|assistant|>" in good
    text = flat_text(good)
    assert "varied 0." in text
    assert "counted" in text
    assert "largest difference between sampler and trainer" in text
    assert "an answer ends with <|end|> (0), <|stop|> (1)" in text


def test_the_page_is_written_as_markdown_too(good, project):
    text = (project.folder / "page.md").read_text()
    assert text.startswith("# rloo check\n\n## Model\n")
    assert max(map(len, text.splitlines())) <= 110
    assert "0 errors" in text


def test_nothing_is_left_of_the_dry_run(good, project):
    assert partial(project.folder) == []
    assert not (project.folder / "data" / "check").exists()
    assert not (project.folder / "data" / "iterations").exists()


def test_a_kept_folder_holds_the_tables_and_runs_stages(workspace):
    workspace.run("rloo", "check", "--keep", "--prompts", "1")
    kept = workspace.folder / "data" / "check"
    assert (kept / "data" / "iterations" / "i0001" / "steps.parquet").exists()
    assert "prompts_per_iteration: 1" in (kept / "params.yaml").read_text()
    folder, workspace.folder = workspace.folder, kept
    try:
        assert "done in" in workspace.run("python", "-m", "stages.advantage", "i0001")
    finally:
        workspace.folder = folder
    workspace.run("rloo", "check", "--keep", "--prompts", "1")  # another one takes its place
    shutil.rmtree(kept)


def test_several_errors_are_all_reported(workspace):
    workspace.params["prepare"]["model"]["source"] = "no/such/model/folder"
    workspace.params["score"]["rewards"]["varied"]["function"] = "stages.score.varied:absent"
    workspace.params["score"]["rewards"]["constraints"]["arguments"] = {"nonsense": 1}
    workspace.params["evaluate"]["parts"] = "stages.score.nowhere:parts"
    workspace.write_params()
    before = tree(workspace.folder)
    found = findings(workspace.fail("rloo", "check"))
    assert "no/such/model/folder" in found
    assert "absent" in found
    assert "stages.score.nowhere" in found
    assert "not checked: rendering needs the model's tokenizer" in found
    assert tree(workspace.folder) == before
    assert partial(workspace.folder) == []


def test_a_broken_reward_does_not_hide_what_follows(workspace):
    """The others are scored, and the policy's options are looked at."""
    workspace.params["score"]["rewards"]["constraints"]["function"] = "stages.score.constraints:absent"
    workspace.write_params()
    page = workspace.fail("rloo", "check")
    assert "absent" in findings(page)
    assert "left out: its function is wrong" in flat_text(page)
    assert "ok score.rewards.varied" in findings(page)
    assert "gradient norm" in findings(page)


def test_a_reward_that_fails_on_all_rows_does_not_hide_the_next(workspace):
    workspace.params["score"]["rewards"]["mine"] = {"function": "stages.score.mine:raising"}
    workspace.write_params()
    page = workspace.fail("rloo", "check")
    assert "RuntimeError: on purpose" in findings(page)
    assert "ok score.rewards.varied" in findings(page)
    assert "gradient norm" in findings(page)
    assert "`--keep` leaves" in page
    assert "data/.cache/check/mine.log" in findings(page)
    assert "on purpose" in (workspace.folder / "data/.cache/check/mine.log").read_text()


def test_a_column_with_gaps_that_a_reward_needs_is_told(workspace):
    rows = [{"prompt": f"{n} + 1", **({"answer": str(n + 1)} if n != 29 else {})} for n in range(30)]
    (workspace.folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workspace.params["prepare"]["prompts"] |= {"embedded": None, "file": {"train": "sums.jsonl", "heldout_prompts": 3}}
    workspace.params["score"]["rewards"] = {"sum": {"function": "stages.score.exact_match:exact_match"}}
    workspace.params["evaluate"]["parts"] = None
    workspace.write_params()
    found = findings(workspace.run("rloo", "check"))
    assert "warning score.rewards.sum.function column answer is null in 1 of 30 prompts: " in found


def test_wrong_targets_are_found_although_the_prompts_are_wrong_too(workspace):
    workspace.params["policy"]["lora"]["targets"] = ["no_such_layer"]
    workspace.params["prepare"]["prompts"]["embedded"]["heldout"] = 100000
    workspace.write_params()
    found = findings(workspace.fail("rloo", "check"))
    assert "no_such_layer" in found
    assert "heldout = 100000" in found


def test_wrong_options_are_all_told_before_anything_runs(workspace):
    workspace.params["rollout"]["temperature"] = -1.0
    workspace.params["updte"] = {}
    workspace.write_params()
    found = findings(workspace.fail("rloo", "check"))
    assert found.count("ERROR params") == 2
    assert "rollout.temperature = -1.0" in found
    assert "updte: no such option" in found


def test_a_missing_plan_is_an_error_and_the_rest_is_checked(workspace):
    plan = workspace.folder / "pipeline" / "plan.yaml"
    text = plan.read_text()
    plan.unlink()
    try:
        found = findings(workspace.fail("rloo", "check"))
    finally:
        plan.write_text(text)
    assert "`rloo plan 12` writes a plan" in found
    assert "gradient norm" in found


def test_a_reward_that_scores_no_row(workspace):
    reward(workspace, "nothing")
    found = findings(workspace.run("rloo", "check"))
    assert "warning score.rewards.mine 6 missing" in found
    assert "no reward scored any row, so nothing can be learnt" in found
    assert "no row had a gradient" in found


def test_groups_without_signal(workspace):
    reward(workspace, "flat")
    workspace.change("score.kl.beta", 0.0)
    found = findings(workspace.run("rloo", "check"))
    assert "all answers to a prompt have the same reward" in found
    assert "no row had a gradient" in found


def test_rewards_beyond_what_counts_as_correct(workspace):
    reward(workspace, "words", arguments={"low": 5.0})
    found = findings(workspace.run("rloo", "check", "--prompts", "3"))
    assert "set them to the rewards' range" in found


def test_prompts_that_leave_no_room_for_the_answer(workspace):
    workspace.change("rollout.max_new_tokens", 500)  # of 512 positions
    found = findings(workspace.fail("rloo", "check"))
    assert "max_new_tokens" in found


def test_a_key_that_the_environment_lacks(workspace):
    workspace.params["judge"] = {
        "endpoint": {"base_url": "http://127.0.0.1:9/v1", "model": "m", "key_variable": "RLOO_TEST_NO_KEY"}
    }
    workspace.write_params()
    assert "the environment has no RLOO_TEST_NO_KEY" in findings(workspace.fail("rloo", "check"))


def test_relative_paths(workspace, tiny_model):
    """Of files in the project, beside it, and among what stages make."""
    folder = workspace.folder
    shutil.copytree(tiny_model, folder / "my" / "model")
    workspace.change("prepare.model.source", "my/model")
    assert "source my/model" in flat_text(workspace.run("rloo", "check"))
    (folder / "my").rename(folder.parent / "my")
    workspace.change("prepare.model.source", "../my/model")
    assert "0 errors" in workspace.run("rloo", "check")
    shutil.copytree(folder.parent / "my" / "model", folder / "data" / "policies" / "i0009")
    workspace.change("prepare.model.source", "data/policies/i0009")
    assert "0 errors" in workspace.run("rloo", "check")
    shutil.rmtree(folder / "data" / "policies")


def test_a_killed_check_is_swept_by_the_next_command(workspace):
    before = tree(workspace.folder)
    process = workspace.start("rloo", "check")
    deadline = time.monotonic() + 60
    while not list((workspace.folder / "data" / ".partial").glob("*.check/data/base/config.json")):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (left,) = partial(workspace.folder)
    assert left.startswith(f"{process.pid}-")
    assert tree(workspace.folder) == before
    workspace.run("python", "-m", "stages.prepare", "sources")
    assert partial(workspace.folder) == []
    made = ("data/sources", "data/run.json", "data/logs", "data/manifests/sources")
    assert all(name.startswith(made) for name in set(tree(workspace.folder)) - set(before))


def test_what_a_run_has_made_is_taken_and_stays_as_it_is(reference):
    before = tree(reference.folder)
    page = flat_text(reference.run("rloo", "check"))
    assert "taken as it is data/base; data/model.json" in page
    assert tree(reference.folder) == before
    assert partial(reference.folder) == []


def test_what_a_run_has_made_of_other_options_is_not_taken(reference, monkeypatch):
    monkeypatch.chdir(reference.folder)
    assert current.is_current(["prepare_model"])
    assert not current.is_current(["prepare_model", "a_stage_that_dvc_yaml_does_not_have"])
    before = reference.params["prepare"]["model"]["source"]
    reference.change("prepare.model.source", "elsewhere")
    assert not current.is_current(["prepare_model"])
    reference.change("prepare.model.source", before)
    assert current.is_current(["prepare_model"])


def test_the_outputs_of_stages_are_those_of_dvc_yaml():
    found = outputs_of(ROOT / "dvc.yaml")
    assert {"base", "prompts.parquet", "policies", "iterations", "critics", "history.csv"} <= found
    assert outputs_of(ROOT / "dvc.yaml") == found


def test_users_files_in_data_are_linked_and_outputs_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(ROOT / "dvc.yaml", "dvc.yaml")
    for name in ("data/base/model.safetensors", "data/mine/prompts.jsonl", "data/logs/a", "stages/x.py", ".git/HEAD"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    fill(tmp_path / "work")
    work = tmp_path / "work"
    assert (work / "data" / "mine" / "prompts.jsonl").read_text() == "data/mine/prompts.jsonl"
    assert (work / "stages").is_symlink()
    assert sorted(path.name for path in (work / "data").iterdir()) == [".cache", "mine"]
    assert not (work / ".git").exists()


def test_reduced_params_keep_the_method(monkeypatch):
    monkeypatch.chdir(ROOT)
    params = load_params()
    made = reduced(params, 2)
    assert made.rollout.prompts_per_iteration == 2
    assert made.rollout.samples_per_prompt == params.rollout.samples_per_prompt
    assert made.update.learning_rate == params.update.learning_rate
    assert made.score.max_failed == 1.0
    same = made.model_copy(update={"rollout": params.rollout, "update": params.update, "score": params.score})
    assert same == params


def test_rewards_that_are_left_out_are_named_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    content = load_params().model_dump()
    content["advantage"]["outcome_reward"] = "constraints"
    content["score"]["rewards"]["other"] = {"function": "module:f"}
    params = type(load_params()).model_validate(content)
    left = {"other": params.score.rewards["other"]}
    assert with_rewards(params, left).advantage.outcome_reward is None
    assert list(with_rewards(params, left).score.rewards) == ["other"]


def test_only_errors_that_a_user_can_mend_are_findings():
    found = []
    assert attempt(found, "here", lambda: 3) == 3

    def wrong():
        raise ParamsError("params.yaml: a: b\nparams.yaml: c: d\nand on")

    assert attempt(found, "here", wrong) is None
    assert [one.text for one in found] == ["params.yaml: a: b", "params.yaml: c: d\nand on"]
    assert attempt(found, "there", wrong) is None
    assert len(found) == 2, "what has been told is not told again"

    def bug():
        raise KeyError("x")

    with pytest.raises(KeyError):
        attempt(found, "here", bug)
    assert isinstance(ParamsError(""), StageError)


@pytest.mark.parametrize(
    ("levels", "expected"), [([], "ok"), (["ok"], "ok"), (["ok", "warning"], "warning"), (["error", "ok"], "error")]
)
def test_the_worst_level(levels, expected):
    assert worst([Finding(level, "", "") for level in levels]) == expected
