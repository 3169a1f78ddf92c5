"""What rollouts depend on through the rewards: nothing, or with dynamic sampling functions and models."""

import json

import polars as pl
import pytest
import yaml

from stages.common import paths
from stages.common.params import ParamsError
from stages.common.params_file import parse_params
from stages.common.tables import PROMPTS, write_table
from stages.prepare.run import run
from tests.silent import Silent
from tests.tiny import save_tiny
from tests.workspace import ROOT

LENGTH = {"function": "stages.score.overlong:soft_overlong", "arguments": {"max_length": 40, "cache": 8}}


def params(dynamic=True, by=None, **rewards):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["reward_models"] = {name: {"preferences": None, "source": "given"} for name in ("rm", "other")}
    raw["score"]["rewards"] = {"length": LENGTH} | rewards
    raw["evaluate"]["parts"] = None
    raw["policy"]["lora"]["last_layers"] = None
    raw["rollout"]["dynamic_sampling"] = {"max_prompts": 32, "reward": by} if dynamic else None
    return parse_params(raw, "params.yaml")


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("rm", "other"):
        paths.reward_model(name).mkdir(parents=True)
        (paths.reward_model(name) / "config.json").write_text("{}")
    with_prompts(40)
    save_tiny(paths.BASE)


def with_prompts(count):
    rows = [dict.fromkeys(PROMPTS) | {"prompt_id": str(number), "split": "train"} for number in range(count)]
    write_table(pl.DataFrame(rows, schema=PROMPTS), PROMPTS, ("prompt_id",), paths.PROMPTS)


def accepted(**options):
    run("acceptance", params(**options), Silent())
    return paths.ACCEPTANCE.read_text()


RM = {"model": "rm", "weight": 1.0}


def test_the_index_names_the_models_that_scores_use(models):
    run("options", params(good=RM), Silent())
    assert json.loads(paths.reward_models_index().read_text()) == {"good": "rm"}
    run("options", params(), Silent())
    assert json.loads(paths.reward_models_index().read_text()) == {}


def test_a_wrong_function_is_told_before_anything_is_made(models):
    with pytest.raises(ParamsError, match=r"score\.rewards\.bad\.function"):
        run("options", params(bad={"function": "no_such_module:f"}), Silent())


def test_more_prompts_than_there_are_is_told_before_anything_is_made(models):
    with_prompts(31)
    with pytest.raises(ParamsError, match=r"rollout\.dynamic_sampling\.max_prompts = 32: .* has 31 to train on"):
        run("options", params(), Silent())
    assert not paths.reward_models_index().exists()
    run("options", params(dynamic=False), Silent())
    with_prompts(32)
    run("options", params(), Silent())


def test_acceptance_changes_with_the_content_of_the_models_that_are_used(models):
    before = accepted(good=RM)
    (paths.reward_model("other") / "config.json").write_text("{ }")
    assert accepted(good=RM) == before
    (paths.reward_model("rm") / "config.json").write_text("{ }")
    assert accepted(good=RM) != before


def test_without_dynamic_sampling_nothing_decides(models):
    assert accepted(dynamic=False, good=RM) == accepted(dynamic=False)


def test_acceptance_changes_with_the_code_of_functions_outside_the_stages(models, tmp_path):
    (tmp_path / "own.py").write_text("def f(completions, **columns): return [1.0] * len(completions)\n")
    before = accepted(own={"function": "own.py:f"})
    (tmp_path / "own.py").write_text("def f(completions, **columns): return [2.0] * len(completions)\n")
    assert accepted(own={"function": "own.py:f"}) != before


@pytest.mark.parametrize(
    ("by", "changes", "same"),
    [
        (None, {"length": LENGTH | {"cache": False}}, True),
        (None, {"length": LENGTH | {"weight": 2.0}}, False),
        (None, {"length": LENGTH | {"rows_per_call": 1}}, False),
        (None, {"length": LENGTH | {"limits": {"row_seconds": 1.0}}}, False),
        (None, {"good": RM | {"weight": 2.0}}, False),
        ("length", {"length": LENGTH | {"weight": 2.0}}, True),
        ("length", {"good": RM | {"weight": 2.0}}, True),
        ("length", {"length": LENGTH | {"arguments": {"max_length": 30, "cache": 8}}}, False),
    ],
)
def test_acceptance_changes_with_what_can_change_the_accepted_groups_and_with_nothing_else(models, by, changes, same):
    assert (accepted(by=by, **{"good": RM} | changes) == accepted(by=by, good=RM)) == same


def test_no_stage_is_repeated_because_more_rows_may_fail():
    assert "- score.max_failed" not in (ROOT / "dvc.yaml").read_text()
    assert "- score\n" not in (ROOT / "dvc.yaml").read_text()
