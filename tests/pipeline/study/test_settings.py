"""Settings and methods of the studies that are there, and what is refused."""

import shutil
from pathlib import Path

import pytest
import yaml

from pipeline.study.runs import settings
from pipeline.study.runs.run import ROOMS
from pipeline.study.runs.settings import Run, Settings, merged, names, put, read_study
from stages.common.errors import StageError

ROOT = Path(__file__).parents[3]
STUDY = Path("pipeline/studies/back-to-basics")


@pytest.fixture
def project(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "pipeline/studies", tmp_path / "pipeline/studies")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(path, change):
    raw = yaml.safe_load(path.read_text())
    change(raw)
    path.write_text(yaml.safe_dump(raw, sort_keys=False))


@pytest.mark.parametrize("name", ["back-to-basics", "back-to-basics-gpu"])
def test_every_run_of_every_study_has_valid_params(project, name):
    study = read_study(name)
    runs = [run for method in study.methods for run in study.runs_of(method)]
    assert len(runs) == len({run.name for run in runs}) == 19 * 3 * 2 * len(study.settings.seeds)
    for run in runs:
        params = study.params_of(run)
        answers = params.rollout.samples_per_prompt + params.rollout.greedy
        assert params.rollout.prompts_per_iteration * answers == study.settings.completions
        assert params.seed == run.seed
        assert params.reward_models["proxy"].preferences.sampled.noise == study.settings.flips[run.flips]
        beta = params.offline["dpo"].dpo.beta if run.method == "dpo" else params.score.kl.beta
        assert beta == run.beta
        assert (params.critic is not None) == run.method.startswith("ppo")
    assert names() == ["back-to-basics", "back-to-basics-gpu"]


def test_a_method_is_one_entry(project):
    entry = {"summary": "a moment", "family": "other", "samples": 2, "set": {"advantage": {"estimator": "dr_grpo"}}}
    edit(project / STUDY / "methods.yaml", lambda raw: raw["methods"].update(dr_grpo=entry))
    for name in names():
        study = read_study(name)
        params = study.params_of(Run("dr_grpo", 0.05, "f10", 1))
        assert (params.advantage.estimator, params.score.kl.beta) == ("dr_grpo", 0.05)


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        ("methods.yaml", lambda raw: raw["methods"]["grpo"].update(sampels=3), "methods.grpo.sampels"),
        ("methods.yaml", lambda raw: raw["methods"]["grpo"]["set"].update(advantages={}), "grpo-beta0.05-f00-seed0"),
        (
            "methods.yaml",
            lambda raw: raw["methods"]["dpo"].update(policy="dop"),
            "'dop' is none of offline: dpo",
        ),
        (
            "methods.yaml",
            lambda raw: raw["methods"]["dpo"].update(beta="offline.a.dpo.beta"),
            "no section a to set it in",
        ),
        ("methods.yaml", lambda raw: raw["methods"].update({"a.b": raw["methods"]["dpo"]}), "methods.a.b"),
        ("settings.yaml", lambda raw: raw["families"].update(poo={}), "families.poo"),
        ("settings.yaml", lambda raw: raw.update(seeds=[]), "seeds"),
        ("settings.yaml", lambda raw: raw.update(completions=63), "63 are no multiple of the 2 answers"),
        ("settings.yaml", lambda raw: raw["world"].update(repeats=2), "544 training prompts"),
        ("settings.yaml", lambda raw: raw["params"].update(reward_models={}), "is none of reward_models"),
        ("settings.yaml", lambda raw: raw["params"]["update"].update(lr=1.0), "update.lr"),
    ],
)
def test_what_is_wrong_is_named(project, file, change, told):
    edit(project / STUDY / file, change)
    with pytest.raises(StageError, match=told):
        read_study("back-to-basics")


@pytest.mark.parametrize("name", ["back-to-basics", "back-to-basics-gpu"])
def test_dvc_watches_every_setting_that_a_run_depends_on(name):
    stages = yaml.safe_load((ROOT / "pipeline/studies" / name / "dvc.yaml").read_text())["stages"]
    watched = {key: keys for one in stages["method"]["do"]["params"] for key, keys in one.items()}
    settings_of_runs = set(watched[f"pipeline/studies/{name}/settings.yaml"])
    through_inputs, of_no_run = {"world"}, {"title", "methods_file", "processes"}
    assert settings_of_runs | through_inputs | of_no_run == set(Settings.model_fields)
    assert watched["pipeline/studies/back-to-basics/methods.yaml"] == ["methods.${key}"]
    rooms = {f"stages/{room}" for room in ROOMS} | {"pipeline/study/runs"}
    assert rooms <= set(stages["method"]["do"]["deps"])


def test_an_unknown_study_is_refused(project):
    with pytest.raises(StageError, match="there are: back-to-basics, back-to-basics-gpu"):
        read_study("back")


def test_merging_changes_neither():
    common, own = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "e": {"f": 5}}
    assert merged(common, own) == {"a": {"b": 4, "c": 2}, "d": 3, "e": {"f": 5}}
    assert common == {"a": {"b": 1, "c": 2}, "d": 3}
    raw = {"a": {"b": {"c": 1}}}
    put(raw, "a.b.c", 2, "here")
    assert raw == {"a": {"b": {"c": 2}}}


def test_studies_lie_where_the_code_looks():
    assert (ROOT / settings.STUDIES).is_dir()
