"""Fine-tuning, preferences, reward models, RL on their score, win-rate and alarms: one run on a tiny random model."""

import json

import polars as pl
import pytest

GOLD = "stages.score.varied:varied"


def section(**more):
    return {"learning_rate": 0.01, "reference_samples": 8} | more


def set_up(workspace):
    pairs = {"prompts": 10, "gold": GOLD, "arguments": {}}
    changes = {
        "sft": {
            "best_of": {"prompts": 8, "samples": 3, "gold": GOLD},
            "learning_rate": 0.01,
            "heldout": 0.25,
            "batch_sequences": 4,
        },
        "reward_models": {
            "proxy": section(preferences={"sampled": pairs | {"noise": 0.1}}, epochs=2),
            "second": section(preferences={"sampled": pairs}),
        },
        "score.rewards": {"rm": {"model": "proxy", "normalise": True}},
        "evaluate.rewards": {"gold": {"function": GOLD}},
        "evaluate.parts": None,
        "judge": {"model": "second"},
        "alarms": {"kl_above": 1e-4, "proxy": "rm", "gold": "gold"},
        "rollout.stop_tokens": ["<|end|>", "<|stop|>", *"aeotibcdfghjklm"],  # random answers have to end
    }
    for key, value in changes.items():
        workspace.change(key, value)
    return workspace


@pytest.fixture(scope="module")
def run(new_workspace):
    made = set_up(new_workspace())
    made.plan(2, 1)
    made.output = made.run("rloo", "train")
    return made


def table(run, name):
    return pl.read_parquet(run.folder / "data" / f"{name}.parquet")


def test_eval_shows_every_reward_and_the_win_rate(run):
    shown = run.run("rloo", "show", "eval")
    evaluation = json.loads((run.folder / "data/iterations/i0002/eval.json").read_text())
    for name in ("rm", "gold"):
        assert f"{evaluation[f'rewards/{name}/mean']:.3f}" in shown
    verdict = json.loads((run.folder / "data/iterations/i0002/judge.json").read_text())
    assert f"{verdict['win_rate']:.3f} [" in shown.replace("\n", " ")
    assert f"{verdict['ties']:.2f}" in shown


def test_every_stage_left_its_table(run):
    proxy = json.loads((run.folder / "data/reward_models/proxy.json").read_text())
    assert set(proxy) == {"heldout", "train", "reference"}
    pairs = table(run, "preferences/proxy")
    assert (pairs["chosen_gold"] != pairs["rejected_gold"]).all()
    assert ((pairs["chosen_gold"] < pairs["rejected_gold"]) == pairs["flipped"]).all()
    assert table(run, "demonstrations")["task_reward"].is_not_null().all()
    for name in ("data/reference", "data/reward_models/proxy"):
        assert list((run.folder / name).glob("*.safetensors"))


def test_the_policy_is_trained_on_the_reward_model(run):
    scores = table(run, "iterations/i0001/scores")
    assert set(scores["status/rm"]) == {"ok"}
    assert scores["task_reward"].to_list() == scores["reward/rm"].to_list()
    generations = table(run, "iterations/i0002/generations")
    assert generations["task_reward"].to_list() == generations["reward/rm"].to_list()
    assert generations["reward/gold"].null_count() == 0  # measured, and no part of the task reward
    assert generations["kl"].abs().max() > 1e-3
    assert table(run, "iterations/i0000/generations")["kl"].abs().max() < 1e-4


def test_the_win_rate_is_that_of_the_judge_s_scores(run):
    judged = table(run, "iterations/i0002/judged")
    found = json.loads((run.folder / "data/iterations/i0002/judge.json").read_text())
    wins = (judged["score"] > judged["other_score"]).sum() + (judged["score"] == judged["other_score"]).sum() / 2
    assert found["win_rate"] == pytest.approx(wins / judged.height)
    assert found["n_pairs"] == judged.height == 6
    assert "against the initial policy" in run.output


def test_history_tells_evaluation_verdict_and_alarms(run):
    history = table(run, "history")
    assert history["judge/win_rate"].is_not_null().to_list() == [False, True, True]
    assert history["eval/rewards/gold/mean"].null_count() == 0
    assert history["alarms"].to_list()[:2] == [None, None]
    assert history["alarms"][2].startswith("kl: ")
    assert run.output.count("alarm, kl") == 1  # once, not after each stage


def test_dvc_alone_gives_the_same_bytes(run, new_workspace):
    other = set_up(new_workspace())
    other.plan(2, 1)
    with other.warm():
        other.run("dvc", "repro", "judge@i0001")
    for stage, outs in other.lock().items():
        assert run.lock()[stage] == outs


def test_an_alarm_that_stops_ends_the_run_and_the_same_command_goes_on(run):
    run.change("alarms", {"kl_above": 1e-4, "stop": ["kl"]})
    run.plan(4, 1)
    output = run.fail("rloo", "train")
    assert "i0003: kl: " in output
    assert "run again to go on" in output
    assert not (run.folder / "data/policies/i0004").exists()
    assert (run.folder / "data/policies/i0003").exists()
    run.change("alarms", {})
    run.run("rloo", "train")
    assert table(run, "history")["alarms"].null_count() == 5
