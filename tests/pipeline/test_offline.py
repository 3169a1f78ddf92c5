"""Policies trained on pairs alone, end to end on a tiny random model: trained, evaluated, judged, shown, exported."""

import json
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from transformers import AutoModelForCausalLM

from pipeline.export import export
from pipeline.show import comparison
from stages.common.errors import StageError
from stages.entry import run_stage

GOLD = "stages.score.varied:varied"
OFFLINE = {
    "by_dpo": {"objective": "dpo", "pairs": "toy", "learning_rate": 0.01, "epochs": 2, "batch_pairs": 4},
    "by_simpo": {"objective": "simpo", "pairs": "toy", "learning_rate": 0.01, "batch_pairs": 3, "pack_tokens": 64},
}


@pytest.fixture(scope="module")
def run(new_workspace):
    made = new_workspace()
    pairs = {"sampled": {"prompts": 12, "gold": GOLD, "arguments": {}}}
    changes = {
        "reward_models": {"toy": {"preferences": pairs, "learning_rate": 0.01, "reference_samples": 8}},
        "offline": OFFLINE,
        "judge": {"function": GOLD},
        "alarms": {"kl_above": 1e-9},
        "evaluate.parts": None,
        "rollout.stop_tokens": ["<|end|>", "<|stop|>", *"aeotibcdfghjklm"],  # random answers have to end
    }
    for key, value in changes.items():
        made.change(key, value)
    made.plan(1, 1)
    made.output = made.run("rloo", "train")
    return made


def table(run, name):
    return pl.read_parquet(run.folder / "data" / f"{name}.parquet")


def test_a_policy_of_the_initial_one_s_form_and_its_steps(run):
    initial = {path.name: path.read_bytes() for path in (run.folder / "data/policies/i0000").iterdir()}
    training = table(run, "preferences/toy").filter(split="train").height
    for name, options in OFFLINE.items():
        folder = run.folder / "data/offline" / name / "policy"
        assert {path.name for path in folder.iterdir()} == set(initial)
        assert (folder / "adapter_config.json").read_bytes() == initial["adapter_config.json"]
        assert (folder / "adapter_model.safetensors").read_bytes() != initial["adapter_model.safetensors"]
        steps = table(run, f"offline/{name}/steps")
        in_epoch = -(-training // options["batch_pairs"])
        assert steps.height == 1 + options.get("epochs", 1) * in_epoch
        measured = [number for number in range(steps.height) if number % in_epoch == 0]
        assert steps.filter(pl.col("heldout_loss").is_not_null())["step"].to_list() == measured


def test_evaluated_and_judged_under_a_number_that_no_iteration_has(run):
    for name in OFFLINE:
        generations, judged = (table(run, f"offline/{name}/{kind}") for kind in ("generations", "judged"))
        assert set(generations["iteration"]) == set(judged["iteration"]) == {-1}
        assert generations["kl"].abs().max() > 1e-3
        assert json.loads((run.folder / f"data/offline/{name}/eval.json").read_text())["n_prompts"] == 6
        assert 0 <= json.loads((run.folder / f"data/offline/{name}/judge.json").read_text())["win_rate"] <= 1
    assert set(table(run, "iterations/i0001/judged")["iteration"]) == {1}


def test_the_terminal_tells_how_each_was_trained_and_looks_for_no_alarm(run):
    steps = table(run, "offline/by_dpo/steps")["step"].max()
    assert "offline@by_dpo" in run.output
    assert f"after {steps} steps of dpo on the pairs of toy, 6 prompts" in run.output
    assert "by_simpo  win-rate " in run.output
    assert "Trained on pairs alone, beside the last iteration" in run.output
    assert "by_dpo  alarm" not in run.output


def test_dvc_has_nothing_left_to_do_and_gives_the_same_bytes_alone(run):
    assert run.nothing_to_do(run.run("dvc", "repro"))
    before = run.lock()
    with run.warm():  # models that the worker holds change nothing, whatever it did before
        run.run("dvc", "repro", "-f", "-s", "evaluate@i0000", "offline@by_simpo", "offline@by_dpo", "evaluate@i0000")
    assert run.lock() == before


def test_only_what_reads_an_option_is_computed_again(run):
    before = run.starts()
    run.change("offline", {**OFFLINE, "by_dpo": OFFLINE["by_dpo"] | {"dpo": {"beta": 0.5}}})
    with run.warm():
        run.run("dvc", "repro")
    assert run.computed_since(before) == {f"{stage} by_dpo" for stage in ("offline", "evaluate", "judge")}


def test_shown_beside_an_iteration_or_each_other(run, monkeypatch):
    shown = run.run("rloo", "show", "eval", "i0000", "by_dpo")
    assert "by_dpo" in shown
    assert "change" in shown
    assert "no policy 'by_ppo'" in run.fail("rloo", "show", "eval", "by_dpo", "by_ppo")
    monkeypatch.chdir(run.folder)
    comparison(Console(), "by_dpo", "by_simpo")
    with pytest.raises(StageError, match=r"i0007 is not evaluated in .*: i0000, i0001 are; and of `offline`: by_dpo"):
        comparison(Console(), "i0000", "i0007")
    with pytest.raises(StageError, match=r"offline has no 'by_ppo'$"):
        run_stage("offline", "by_ppo")
    with pytest.raises(StageError, match="offline has no 'i1'; iterations have names like i0003"):
        run_stage("evaluate", "i1")


def test_exported_as_a_model_folder(run, monkeypatch):
    monkeypatch.chdir(run.folder)
    export("by_simpo", Path("exported"))
    assert AutoModelForCausalLM.from_pretrained("exported").num_parameters() > 0
    with pytest.raises(StageError, match=r"no policy 'by_ppo': .* by_dpo, by_simpo"):
        export("by_ppo", Path("nowhere"))
