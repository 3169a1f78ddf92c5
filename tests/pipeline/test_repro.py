"""`dvc repro` on a tiny random model, end to end: what re-runs, what does not, and that bytes repeat."""

import os

import polars as pl
import pytest
import torch
import yaml
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

TRAINING = {"rollout", "score", "advantage", "update"}


@pytest.fixture(scope="module")
def workspace(new_workspace):
    """A second clone, trained like the reference, which the tests of this module change."""
    made = new_workspace()
    made.plan(2)
    with made.warm():
        made.run("dvc", "repro")
        yield made


def test_two_clones_have_the_same_hashes(reference, workspace):
    assert workspace.lock() == reference.lock()
    assert len(workspace.lock()) == 8 + 2 + 2 * 4 + 1 + 2 + 1 + 1


def test_a_second_repro_executes_nothing(workspace):
    before = workspace.starts()
    output = workspace.run("dvc", "repro")
    assert workspace.nothing_to_do(output)
    assert workspace.computed_since(before) == set()


def test_cold_stages_give_the_same_bytes(reference, new_workspace):
    cold = new_workspace()
    cold.plan(1, 1)
    cold.run("dvc", "repro", "update@i0001", "evaluate@i0000")
    for stage in ("rollout@i0001", "score@i0001", "advantage@i0001", "update@i0001", "evaluate@i0000"):
        assert cold.lock()[stage] == reference.lock()[stage]


def test_tables_of_all_iterations_are_one_frame(workspace):
    frame = pl.scan_parquet(workspace.folder / "data/iterations/*/advantages.parquet").collect()
    assert frame["iteration"].unique().sort().to_list() == [1, 2]
    group = ("iteration", "prompt_id")
    assert frame.group_by(group).agg(pl.col("advantage").sum().abs())["advantage"].max() <= 1e-9
    for row in frame.iter_rows(named=True):
        siblings = frame.filter(
            pl.all_horizontal(pl.col(key) == row[key] for key in group) & (pl.col("sample") != row["sample"])
        )
        assert row["baseline"] == pytest.approx(siblings["score"].mean(), abs=1e-12)
    scores = pl.scan_parquet(workspace.folder / "data/iterations/*/scores.parquet").collect()
    rollouts = pl.scan_parquet(workspace.folder / "data/iterations/*/rollouts.parquet").collect()
    assert scores.height == rollouts.height == frame.height == 2 * 3 * 3
    assert rollouts["seed"].n_unique() == rollouts.height
    assert scores.filter(pl.col("iteration") == 1)["kl"].abs().max() < 1e-3
    assert scores.filter(pl.col("iteration") == 2)["kl"].abs().max() > 1e-3


def test_changing_beta_reuses_the_first_rollouts_and_changing_it_back_computes_nothing(workspace, reference):
    before = workspace.starts()
    workspace.change("score.kl.beta", 0.5)
    workspace.run("dvc", "repro")
    computed = workspace.computed_since(before)
    assert {"score i0001", "advantage i0001", "update i0001", "rollout i0002"} <= computed
    assert not {"rollout i0001", "prompts prepare", "evaluate i0000"} & computed
    assert workspace.lock()["rollout@i0001"] == reference.lock()["rollout@i0001"]
    assert workspace.lock()["update@i0001"] != reference.lock()["update@i0001"]
    before = workspace.starts()
    workspace.change("score.kl.beta", reference.params["score"]["kl"]["beta"])
    workspace.run("dvc", "repro")
    assert workspace.computed_since(before) == set()
    assert workspace.lock() == reference.lock()


def test_changing_evaluation_touches_no_training_stage(workspace, reference):
    before = workspace.starts()
    workspace.change("evaluate.samples_per_prompt", 2)
    workspace.run("dvc", "repro")
    assert workspace.computed_since(before) == {"evaluate i0000", "evaluate i0002", "judge i0002", "history i0002"}
    workspace.change("evaluate.samples_per_prompt", 1)
    workspace.run("dvc", "repro")
    assert workspace.lock() == reference.lock()


def test_history_shows_the_evaluations_of_the_plan_only(workspace, reference):
    workspace.plan(1, 1)
    workspace.run("dvc", "repro")
    workspace.plan(2)
    workspace.run("dvc", "repro")
    history = pl.read_parquet(workspace.folder / "data/history.parquet")
    assert history["eval/reward"].is_null().to_list() == [False, True, False]
    assert workspace.lock()["history"] == reference.lock()["history"]


def test_extending_a_finished_plan_runs_only_what_is_new(workspace, reference):
    before = workspace.starts()
    workspace.plan(4)
    workspace.run("dvc", "repro")
    new = {f"{stage} i000{i}" for stage in TRAINING for i in (3, 4)}
    assert workspace.computed_since(before) == new | {
        "diagnose i0004",
        "evaluate i0004",
        "judge i0004",
        "history i0004",
    }
    for stage, outs in reference.lock().items():
        if stage != "history":
            assert workspace.lock()[stage] == outs


def test_weights_and_optimizer_state_are_safetensors_only(reference):
    files = [p for p in (reference.folder / "data").rglob("*") if p.is_file()]
    assert not [p for p in files if p.suffix in {".bin", ".pt", ".pth", ".pkl"}]
    with safe_open(reference.folder / "data/optimizer/i0002/optimizer.safetensors", framework="pt") as state:
        assert state.metadata()["steps"] == "2"
        assert all(name.startswith(("exp_avg/", "exp_avg_sq/")) for name in state.keys())  # noqa: SIM118


def test_history_has_a_row_per_iteration_and_the_names_of_the_field(reference):
    history = pl.read_parquet(reference.folder / "data/history.parquet")
    assert history["iteration"].to_list() == [0, 1, 2]
    wanted = [
        "reward",
        "reward_std",
        "rewards/constraints/mean",
        "frac_reward_zero_std",
        "kl",
        "entropy",
        "completions/mean_length",
        "completions/clipped_ratio",
        "grad_norm",
        "num_tokens",
        "groups/all_correct",
        "groups/all_wrong",
        "groups/mixed",
        "eval/reward",
    ]
    assert set(wanted) <= set(history.columns)
    assert history["num_tokens"].is_sorted()
    assert pl.read_csv(reference.folder / "data/history.csv").columns == history.columns
    seconds = pl.read_csv(reference.folder / "data/seconds.csv")
    assert seconds.filter(pl.col("iteration") > 0)["seconds/update"].null_count() == 0


def test_plots_are_drawn_from_the_history(reference):
    reference.run("dvc", "plots", "show", "--out", "dvc_plots")
    page = (reference.folder / "dvc_plots" / "index.html").read_text()
    for title in ("Task reward per iteration", "KL to the reference", "Gradient norm", "Seconds per stage"):
        assert title in page


def test_what_cannot_be_exported_is_refused(reference, tmp_path, monkeypatch):
    assert "i0009 is no iteration of pipeline/plan.yaml" in reference.fail("rloo", "export", "i0009", "exported")
    (tmp_path / "torch.py").write_text("raise ImportError('libnothing.so.1: cannot open')")
    monkeypatch.setitem(reference.extra, "PYTHONPATH", f"{tmp_path}{os.pathsep}{reference.folder}")
    output = reference.fail("rloo", "export", "i0002", "exported")
    assert "libnothing.so.1" in output
    assert "make setup" in output
    assert not (reference.folder / "exported").exists()


def test_export_writes_a_folder_that_transformers_loads(reference):
    reference.run("rloo", "export", "i0002", "exported")
    folder = reference.folder / "exported"
    exported = AutoModelForCausalLM.from_pretrained(folder)
    assert not hasattr(exported, "peft_config")
    base = AutoModelForCausalLM.from_pretrained(reference.folder / "data/base")
    peft = PeftModel.from_pretrained(base, reference.folder / "data/policies/i0002")
    ids = torch.tensor([[11, 12, 13]])
    torch.testing.assert_close(exported(ids).logits, peft(ids).logits, rtol=0, atol=1e-5)
    assert len(AutoTokenizer.from_pretrained(folder)) == 300
    assert "exists already" in reference.fail("rloo", "export", "i0002", "exported")


def test_show_prints_a_row_with_why_it_counted(reference):
    output = reference.run("rloo", "show", "rows", "i0002", "--count", "1")
    for word in ("prompt", "completion", "rewards", "baseline", "advantage", "counted"):
        assert word in output
    assert "paired by prompt" in reference.run("rloo", "show", "eval")
    assert "held out" in reference.run("rloo", "show", "history")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rollout.samples_per_prompt", 1, "rollout.samples_per_prompt = 1"),
        ("rollout.top_p", 0.9, "rollout.top_p = 0.9"),
        ("rollout.stop_token", ["x"], "rollout.stop_token: no such option"),
    ],
)
def test_bad_params_are_refused_before_anything_runs(workspace, key, value, message):
    good, before = yaml.safe_dump(workspace.params), workspace.starts()
    workspace.change(key, value)
    output = workspace.fail("rloo", "train")
    workspace.params = yaml.safe_load(good)
    workspace.write_params()
    assert message in output
    assert workspace.computed_since(before) == set()


def test_low_precision_keeps_masters_and_repeats(new_workspace):
    made = [new_workspace(), new_workspace()]
    for workspace in made:
        workspace.change("compute.dtype", "bfloat16")
        workspace.change("policy.method", "full")
        workspace.plan(2)
        with workspace.warm():
            workspace.run("dvc", "repro", "update@i0002")
    assert made[0].lock() == made[1].lock()
    with safe_open(made[0].folder / "data/optimizer/i0002/optimizer.safetensors", framework="pt") as state:
        masters = {name: state.get_tensor(name) for name in state.keys() if name.startswith("master/")}  # noqa: SIM118
    assert masters
    policy = AutoModelForCausalLM.from_pretrained(made[0].folder / "data/policies/i0002", dtype="auto")
    assert policy.dtype == torch.bfloat16
    weights = dict(policy.named_parameters())
    for name, master in masters.items():
        assert torch.equal(weights[name.removeprefix("master/")], master.bfloat16())


def test_a_stage_runs_alone_without_dvc_and_writes_the_same_bytes(workspace):
    table = workspace.folder / "data/iterations/i0002/advantages.parquet"
    before = table.read_bytes()
    assert "done in" in workspace.run("python", "-m", "stages.advantage", "i0002")
    assert table.read_bytes() == before
    assert "is not the name of an iteration" in workspace.fail("python", "-m", "stages.advantage", "two")
    assert "i0099/scores.parquet does not exist" in workspace.fail("python", "-m", "stages.advantage", "i0099")
