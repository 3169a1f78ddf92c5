"""Users' files by `dvc repro` and `rloo train`: what changes runs again, what is only touched does not."""

import shutil

import pytest

from tests.pipeline.test_methods import table

REWARD = "def brief(completion_ids, **columns):\n    return [{scale} * (sum(ids) % 5) / 5 for ids in completion_ids]\n"


@pytest.fixture(scope="module")
def run(new_workspace, tiny_model):
    """An iteration by the flow, on a model folder and a reward function beside the project, without a penalty."""
    made = new_workspace()
    beside = made.folder.parent
    shutil.copytree(tiny_model, beside / "model")
    (made.folder / "stages/score/own.py").write_text(REWARD.format(scale=1.0))
    made.change("prepare.model.source", str(beside / "model"))
    made.change("score.rewards", {"brief": {"function": "stages.score.own:brief"}})
    made.change("score.kl.beta", 0.0)
    made.plan(1, 1)
    made.output = made.run("rloo", "train")
    with made.warm():
        yield made


def test_a_run_without_a_penalty_is_shown_with_a_dash(run):
    assert "KL      -" in run.output
    assert "prepare_sources" not in run.output
    assert table(run, "scores")["kl"].null_count() == table(run, "scores").height
    for what in ("history", "diagnostics", "eval"):
        run.run("rloo", "show", what)
    assert "-" in run.run("rloo", "show", "rows", "i0001", "--count", "1")
    run.run("rloo", "compare", "i0001", "--estimators", "rloo,grpo", "--no-gradients")
    run.run("dvc", "plots", "show", "--out", "dvc_plots")


def test_the_flow_leaves_nothing_to_do_and_touching_runs_nothing(run):
    assert run.nothing_to_do(run.run("dvc", "repro"))
    for path in (run.folder.parent / "model").iterdir():
        path.touch()
    before = run.starts()
    assert run.nothing_to_do(run.run("dvc", "repro"))
    assert run.computed_since(before) == set()


def test_a_model_that_changes_in_its_folder_is_imported_again(run):
    before = run.starts()
    path = run.folder.parent / "model" / "tokenizer_config.json"
    path.write_text(path.read_text().replace('"pad_token": "<|end|>"', '"pad_token": "<|stop|>"'))
    run.run("dvc", "repro", "prepare_model")
    assert run.computed_since(before) == {"prepare model"}


def test_a_reward_that_changes_scores_again_and_samples_nothing(run):
    run.run("dvc", "repro")
    before = run.starts()
    (run.folder / "stages/score/own.py").write_text(REWARD.format(scale=0.5))
    run.run("dvc", "repro")
    computed = run.computed_since(before)
    assert {"score i0001", "advantage i0001", "update i0001"} <= computed
    assert "rollout i0001" not in computed
