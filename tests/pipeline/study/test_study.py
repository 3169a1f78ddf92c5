"""A study end to end in a tiny version of the small world: as a flow, again, with one more method, and killed."""

import os
import signal
import time

import polars as pl
import psutil
import pytest
import yaml
from safetensors.torch import load_file

STUDY = "pipeline/studies/back-to-basics"
KEPT = ("rloo_k4", "ppo_lam1", "dpo")


def edit(workspace, file, change):
    path = workspace.folder / STUDY / file
    raw = yaml.safe_load(path.read_text())
    change(raw)
    path.write_text(yaml.safe_dump(raw, sort_keys=False))


def shrink(raw):
    raw |= {"iterations": 3, "evaluate_every": 2, "completions": 8, "seeds": [0], "betas": [0.1]}
    raw["world"] |= {"hidden": 16, "layers": 1, "heads": 2, "heldout": 6, "demonstrations": 1, "repeats": 1}
    params = raw["params"]
    params["prepare"]["prompts"]["embedded"] |= {"train": 330, "heldout": 6}
    params["sft"] |= {"epochs": 1}
    proxy = params["reward_models"]["proxy"]
    proxy |= {"epochs": 1, "reference_samples": 16}
    proxy["preferences"]["sampled"]["prompts"] = 40
    params["evaluate"] |= {"samples_per_prompt": 2, "resamples": 100}


@pytest.fixture(scope="module")
def study(new_workspace):
    made = new_workspace()
    edit(made, "settings.yaml", shrink)
    edit(made, "methods.yaml", lambda raw: raw.update(methods={name: raw["methods"][name] for name in KEPT}))
    made.output = made.run("rloo", "study", "back-to-basics")
    return made


def data(workspace, *parts):
    return workspace.folder.joinpath("data/studies/back-to-basics", *parts)


def curves(workspace, method):
    return pl.read_parquet(data(workspace, "methods", method, "curves.parquet"))


def test_every_run_is_in_the_tables(study):
    for method, iterations in (("rloo_k4", [0, 2, 3]), ("ppo_lam1", [0, 2, 3]), ("dpo", [-1, 0])):
        table = curves(study, method)
        for flips in ("f00", "f10"):
            one = table.filter(flips=flips)
            assert one["iteration"].to_list() == iterations
            final = one.filter("final")
            assert final["iteration"].to_list() == [-1 if method == "dpo" else 3]
            assert final["win_rate"].null_count() == 0
        assert table.filter(iteration=0)["kl"].abs().max() < 1e-5  # the policy is the reference
    costs = [pl.read_parquet(data(study, "methods", m, "costs.parquet"))["models"].to_list() for m in KEPT]
    assert costs == [[3, 3], [4, 4], [2, 2]]
    assert curves(study, "ppo_lam1").filter("final")["clipped"].null_count() == 0


def test_state_is_counted(study):
    """In float32 the reference takes n numbers, the policy n and two moments; and so do the other models."""
    numbers = sum(v.numel() for v in load_file(data(study, "sft", "reference", "model.safetensors")).values())
    states = {m: pl.read_parquet(data(study, "methods", m, "costs.parquet"))["state_mb"][0] * 1e6 for m in KEPT}
    assert states["dpo"] == 4 * numbers * (1 + 3)
    reward = states["rloo_k4"] - states["dpo"]
    assert 0.5 * 4 * numbers < reward <= 4 * numbers + 64
    assert states["ppo_lam1"] - states["rloo_k4"] == 3 * reward  # the critic has the form of the reward model


def test_all_runs_start_from_the_same_policy(study):
    starts = [curves(study, method).filter(iteration=0, flips="f00")["gold"].item() for method in KEPT]
    assert len(set(starts)) == 1


def test_flips_turn_labels_and_nothing_else(study):
    clean, noisy = (
        pl.read_parquet(data(study, "reward_models", flips, "preferences/proxy.parquet")) for flips in ("f00", "f10")
    )
    assert not clean["flipped"].any()
    assert noisy["flipped"].any()
    pairs = [
        {frozenset(map(tuple, row)) for row in t.select("chosen_ids", "rejected_ids").rows()} for t in (clean, noisy)
    ]
    assert pairs[0] == pairs[1]


def test_the_page_has_table_plots_and_claims(study):
    page = data(study, "report", "README.md").read_text()
    for image in ("win_rates.svg", "lambda_and_k.svg", "over_optimisation.svg", "robustness.svg"):
        assert image in page
        assert data(study, "report", image).read_text().lstrip().startswith("<?xml")
    assert "| rloo_k4 | 0." in page
    assert "RLOO needs less memory than PPO" not in page  # of ppo_lam095, which this study has not
    assert "method@rloo_k4" in study.output


def test_again_nothing_is_computed_and_a_new_method_alone(study):
    before = study.starts()
    study.run("rloo", "study", "back-to-basics")
    assert not study.computed_since(before)
    entry = {"summary": "a moment", "family": "other", "samples": 2, "set": {"advantage": {"estimator": "dr_grpo"}}}
    edit(study, "methods.yaml", lambda raw: raw["methods"].update(new=entry))
    study.run("dvc", "repro", f"{STUDY}/dvc.yaml")
    assert study.computed_since(before) == {"method study-back-to-basics-new", "report study-back-to-basics"}
    assert curves(study, "new").filter("final").height == 2


def test_a_change_of_a_family_is_seen(study):
    before = study.starts()
    edit(study, "settings.yaml", lambda raw: raw["families"]["ppo"]["critic"].update(learning_rate=1.0e-3))
    study.run("dvc", "repro", f"{STUDY}/dvc.yaml:method@ppo_lam1")
    assert study.computed_since(before) == {"method study-back-to-basics-ppo_lam1"}
    assert study.run("python", "-m", "pipeline.study", "method", "back-to-basics", "rloo_k4").count("0 of them") == 1


def inside(workspace):
    """Processes that work in the workspace or a folder of it."""
    return [p for p in psutil.process_iter(["cwd"]) if (p.info["cwd"] or "").startswith(str(workspace.folder))]


def test_a_killed_study_goes_on_and_ends_with_the_same_curves(study):
    wanted = curves(study, "ppo_lam1")
    for path in (*data(study, "runs").glob("ppo_lam1-*"), data(study, "methods", "ppo_lam1")):
        study.run("rm", "-rf", str(path))
    command = ("python", "-m", "pipeline.study", "method", "back-to-basics", "ppo_lam1")
    process = study.start(*command)
    deadline = time.monotonic() + 120
    while not list(data(study, "work").glob("ppo_lam1-*/done/iteration-i0001")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while inside(study):
        assert time.monotonic() < deadline, inside(study)
        time.sleep(0.1)
    assert not data(study, "methods", "ppo_lam1").exists()
    study.run(*command)
    assert curves(study, "ppo_lam1").equals(wanted)
    assert not list(data(study, "work").iterdir())
