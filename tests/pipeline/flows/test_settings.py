"""A deployed run writes a preset and single options to params.yaml, both or nothing."""

import shutil

import pytest
import yaml

from pipeline.flows.settings import keys_of, settle
from stages.common.errors import StageError
from stages.common.params import ParamsError
from tests.workspace import ROOT


@pytest.fixture
def params(tmp_path):
    return shutil.copyfile(ROOT / "params.yaml", tmp_path / "params.yaml")


def test_a_preset_and_options_are_written_and_comments_stay(params):
    changed = settle("grpo", {"score.kl.beta": 0.125, "rollout": {"samples_per_prompt": 8}}, params)
    content = yaml.safe_load(params.read_text())
    assert content["score"]["kl"]["beta"] == 0.125
    assert content["rollout"]["samples_per_prompt"] == 8
    assert content["advantage"]["estimator"] == "grpo"
    assert changed["score.kl.beta"] == 0.125
    assert "# penalty per nat of KL to the reference; 0: no reference is loaded" in params.read_text()


def test_an_option_wins_over_the_preset(params):
    settle("grpo", {"update.epochs": 3}, params)
    assert yaml.safe_load(params.read_text())["update"]["epochs"] == 3


def test_what_is_so_already_changes_no_byte(params):
    before = params.read_bytes()
    assert settle(None, {"rollout.samples_per_prompt": 4}, params) == {}
    assert params.read_bytes() == before


@pytest.mark.parametrize(
    ("preset", "overrides", "told"),
    [
        (None, {"score.kl.bet": 0.1}, "score.kl.bet: no such option"),
        (None, {"rollout.samples_per_prompt": -1}, "rollout.samples_per_prompt = -1"),
        ("no_such", {}, "no preset 'no_such'; there are: "),
        ("grpo", {"score": {"kl": {"beta": "much"}}}, "score.kl.beta = 'much'"),
        (None, {"score.kl.beta": 0.1, "score": {"kl": {"beta": 0.2}}}, "overrides: score.kl.beta is there twice"),
        (None, {"seed.of": 1}, "expected a section with of"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_written(params, preset, overrides, told):
    before = params.read_bytes()
    with pytest.raises(StageError, match=r"(?s).") as error:
        settle(preset, overrides, params)
    assert told in str(error.value)
    assert params.read_bytes() == before


def test_outside_a_project_the_remedy_is_told(tmp_path):
    with pytest.raises(ParamsError, match="has the project's folder as its working directory"):
        settle(None, {}, tmp_path / "params.yaml")


def test_a_mapping_is_a_value_where_params_yaml_has_no_section():
    raw = {"score": {"rewards": {}}, "judge": None}
    assert keys_of({"judge": {"function": "a:b"}, "score": {"rewards": {"x": 1}}}, raw) == {
        ("judge",): {"function": "a:b"},
        ("score", "rewards", "x"): 1,
    }
