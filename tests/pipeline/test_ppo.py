"""PPO with a critic on a tiny random model, end to end: an adapter as policy, a full critic, two iterations."""

import json

import polars as pl
import pytest

from tests.pipeline.test_methods import table

PPO = {
    "advantage.estimator": "gae",
    "advantage.gae": {"gamma": 1.0, "lam": 0.9, "lam_critic": 1.0, "length_adaptive": None},
    "score.kl.placement": "reward_to_go",
    "update.objective": "ppo",
    "update.reduction": "token_mean",
    "update.epochs": 2,
    "critic": {
        "method": "full",
        "learning_rate": 0.01,
        "epochs": 2,
        "minibatches": 3,
        "pretraining": {"prompts": 6, "samples": 2, "epochs": 3},
    },
}


def ppo(made, iterations=2):
    for key, value in PPO.items():
        made.change(key, value)
    made.plan(iterations, 2)
    return made


@pytest.fixture(scope="module")
def run(new_workspace):
    """Two iterations in one warm process."""
    made = ppo(new_workspace())
    with made.warm():
        made.run("dvc", "repro")
        yield made


def test_tables_speak_of_the_same_tokens(run):
    for iteration in ("i0001", "i0002"):
        scores, advantages = table(run, "scores", iteration), table(run, "advantages", iteration)
        assert scores["values"].list.len().to_list() == scores["ref_logprobs"].list.len().to_list()
        assert advantages["values"].to_list() == scores["values"].to_list()
        first = advantages["values"].list.first().to_list()
        assert advantages["baseline"].to_list() == pytest.approx(first)
        for row in scores.join(advantages, on=("prompt_id", "sample")).iter_rows(named=True):
            cost = 0.04 * sum(row["token_kl"])  # lambda of the critic is 1: all that is still to come
            assert row["returns"][0] == pytest.approx(row["task_reward"] - cost, abs=1e-5)
            assert row["returns"][-1] == pytest.approx(row["task_reward"] - 0.04 * row["token_kl"][-1], abs=1e-5)


def test_the_critic_s_steps_are_counted_from_pretraining_on(run):
    critics = run.folder / "data/critics"
    pretraining = pl.read_parquet(critics / "i0000/pretraining.parquet")
    assert pretraining["optimizer_step"].to_list() == list(range(1, 19))  # 6 prompts, one a step, 3 epochs
    assert pretraining["value_loss"][-1] < pretraining["value_loss"][0]
    steps = table(run, "critic_steps"), table(run, "critic_steps", "i0002")
    assert steps[0]["optimizer_step"].to_list() == list(range(19, 25))
    assert steps[1]["optimizer_step"].to_list() == list(range(25, 31))
    assert [s["epoch"].to_list() for s in steps] == [[1, 1, 1, 2, 2, 2]] * 2
    assert json.loads((critics / "i0002/critic.json").read_text())["critic"] == {"initial": "policy", "method": "full"}
    assert not (critics / "i0002/pretraining.parquet").exists()


def test_history_and_diagnostics_show_the_critic(run):
    history = pl.read_parquet(run.folder / "data/history.parquet")
    for name in ("value_loss", "explained_variance", "value_clip"):
        assert history[name][2] == pytest.approx(table(run, "critic_steps", "i0002")[name].mean())
    assert "explained" in run.run("rloo", "show", "diagnostics")
    assert "value before the first token" in run.run("rloo", "show", "rows", "i0001", "--count", "1")


def test_gae_is_compared_with_other_estimators(run):
    output = run.run("rloo", "compare", "i0001", "--estimators", "gae,rloo,reinforce")
    frame = pl.read_parquet(run.folder / "data/compare/i0001.parquet")
    assert frame["advantage/gae"].to_list() == table(run, "advantages")["advantage"].to_list()
    assert "Cosine between the gradients" in output


def test_the_critic_s_training_changes_no_bit_of_the_policy_of_its_iteration(run):
    before = run.lock()
    run.change("critic.epochs", 1)
    run.run("dvc", "repro", "update@i0001")
    after = run.lock()
    run.change("critic.epochs", 2)
    run.run("dvc", "repro", "update@i0001")
    same = ("data/policies/i0001", "data/iterations/i0001/steps.parquet")
    assert [after["update@i0001"][path] for path in same] == [before["update@i0001"][path] for path in same]
    assert after["update@i0001"]["data/critics/i0001"] != before["update@i0001"]["data/critics/i0001"]
    assert after["critic_initial"] == before["critic_initial"]
    assert run.lock() == before


def test_a_second_repro_computes_nothing_and_cold_processes_give_the_same_lock(run, new_workspace):
    before = run.starts()
    assert run.nothing_to_do(run.run("dvc", "repro"))
    assert run.computed_since(before) == set()
    cold = ppo(new_workspace(), 1)
    with cold.warm():  # as far as nothing here differs
        cold.run("dvc", "repro", "critic_initial", "rollout@i0001")
    cold.run("dvc", "repro", "update@i0001")
    for stage in ("critic_initial", "score@i0001", "advantage@i0001", "update@i0001"):
        assert cold.lock()[stage] == run.lock()[stage]


def test_a_run_without_a_critic_has_nothing_to_compare_gae_with(reference):
    output = reference.fail("rloo", "compare", "i0001", "--estimators", "rloo,gae", "--no-gradients")
    assert "gae takes the values of a critic, and the scores of this iteration have none" in output
    assert json.loads((reference.folder / "data/critics/i0002/critic.json").read_text()) == {"critic": None}
    assert table(reference, "critic_steps").is_empty()
    assert table(reference, "scores")["values"].null_count() == 9
    assert "value_loss" not in pl.read_parquet(reference.folder / "data/history.parquet").columns
