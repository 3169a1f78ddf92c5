"""What comes before the first iteration, end to end on a tiny random model."""

import os

import polars as pl
import pytest

SFT = {"best_of": {"prompts": 12, "samples": 6}, "learning_rate": 0.01, "heldout": 0.2, "epochs": 2}


@pytest.fixture(scope="module")
def workspace(new_workspace):
    """One workspace with a worker; the tests change its params."""
    made = new_workspace()
    made.plan(1)
    made.change("rollout.max_new_tokens", 60)  # long enough that some random answers end
    with made.warm():
        yield made


def same_files(workspace, one, other):
    return all(
        os.path.samefile(path, workspace.folder / other / path.name) for path in (workspace.folder / one).iterdir()
    )


def test_the_base_is_fine_tuned_on_its_own_best_answers(workspace):
    workspace.run("dvc", "repro", "prepare_policy")
    plain = workspace.lock()
    assert plain["sft_policy"]["data/reference"] == plain["prepare_model"]["data/base"]
    assert same_files(workspace, "data/reference", "data/base")
    workspace.change("sft", SFT)
    workspace.run("dvc", "repro", "prepare_policy")
    demonstrations = pl.read_parquet(workspace.folder / "data/demonstrations.parquet")
    steps = pl.read_parquet(workspace.folder / "data/sft.parquet")
    assert set(demonstrations["split"]) == {"train", "heldout"}
    assert demonstrations["task_reward"].null_count() == 0
    assert steps["heldout_loss"].is_not_null().to_list() == [True, True, True]
    assert steps["loss"][2] < steps["loss"][1]  # the same rows again; there is nothing in noise that would generalise
    assert workspace.lock()["prepare_model"] == plain["prepare_model"]
    assert workspace.lock()["sft_policy"]["data/reference"] != plain["sft_policy"]["data/reference"]


def test_only_what_reads_an_option_is_computed_again(workspace):
    def computed_after(option, value):
        before = workspace.starts()
        workspace.change(option, value)
        workspace.run("dvc", "repro", "sft_policy")
        return workspace.computed_since(before)

    assert computed_after("sft.learning_rate", 0.02) == {"prepare options", "sft policy"}
    assert computed_after("policy.lora.rank", 1) == {"prepare options"}
    assert computed_after("score.kl.beta", 0.1) == set()
    assert computed_after("score.rewards.varied.weight", -1.0) >= {"prepare options", "sft demonstrations"}
    assert computed_after("sft", None) == {"prepare options"}  # DVC still has what the test above began with
    assert same_files(workspace, "data/reference", "data/base")
    assert computed_after("score.rewards.varied.weight", 1.0) == {"prepare options"}
