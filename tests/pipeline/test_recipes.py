"""`rloo recipe`: whole runs, written into a params.yaml whose other keys stay as they are."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app, main
from pipeline.recipes import read_recipes
from pipeline.yaml_text import get, parse
from stages.common.params_file import load_params

ROOT = Path(__file__).parents[2]
RECIPES = read_recipes()


@pytest.fixture
def params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(ROOT / "params.yaml", tmp_path / "params.yaml")
    return tmp_path / "params.yaml"


def recipe(*arguments):
    result = CliRunner().invoke(app, ["recipe", *arguments])
    assert result.exit_code == 0, result.output or result.exception
    return result.output


def content(path):
    return parse(path.read_text(), "params.yaml")


def test_all_recipes_set_the_same_keys():
    assert len({frozenset(one.settings) for one in RECIPES.values()}) == 1


@pytest.mark.parametrize("name", RECIPES)
def test_each_sets_its_keys_and_no_other(params, name):
    before = content(params)
    recipe(name)
    after = content(params)
    for key, value in RECIPES[name].settings.items():
        assert get(after, key) == value
        *sections, last = key
        for raw in (before, after):
            section = get(raw, tuple(sections)) if sections else raw
            del section[last]
    assert before == after
    load_params(params)


def test_rlvr_is_what_params_yaml_comes_with(params):
    before = params.read_bytes()
    assert "nothing to change" in recipe("rlvr")
    assert params.read_bytes() == before
    raw = content(params)
    recipe("rlhf")
    assert load_params(params).reward_models["proxy"].preferences is not None
    recipe("rlvr")
    assert content(params) == raw


def test_dry_run_writes_nothing_and_tells_what_was(params):
    before = params.read_bytes()
    assert "score.kl.beta: 0.04 -> 0.1" in recipe("rlhf", "--dry-run")
    assert params.read_bytes() == before


def test_without_a_name_they_are_listed():
    assert all(name in recipe() for name in RECIPES)


def test_an_unknown_one_is_refused(params, capsys):
    with pytest.raises(SystemExit):
        main(["recipe", "rlfh"])
    assert "there are: rlvr, rlhf" in capsys.readouterr().err


def test_the_penalty_of_a_preset_stays(params):
    recipe("rlhf")
    refused = CliRunner().invoke(app, ["preset", "dapo"])
    assert "alarms.kl_above: with score.kl.beta 0 no reference is loaded" in str(refused.exception)
    params.write_text(params.read_text().replace("kl_above: 20.0, ", ""))
    preset = CliRunner().invoke(app, ["preset", "dapo"])
    assert preset.exit_code == 0, preset.output
    before = content(params)
    assert set(before["score"]["rewards"]) == {"proxy", "overlong"}
    recipe("rlhf")
    assert content(params)["score"]["rewards"] == before["score"]["rewards"]


def test_rlvr_takes_out_what_rlhf_made_possible(params):
    recipe("rlhf")
    entry = "offline: {by_dpo: {objective: dpo, pairs: proxy, learning_rate: 1.0e-4}}"
    params.write_text(params.read_text().replace("offline: {}", entry))
    load_params(params)
    recipe("rlvr")
    assert content(params)["offline"] == {}


def test_a_result_that_is_not_valid_is_not_written(params, capsys):
    text = params.read_text().replace("outcome_reward: null", "outcome_reward: constraints")
    params.write_text(text)
    with pytest.raises(SystemExit):
        main(["recipe", "rlhf"])
    assert "advantage.outcome_reward = 'constraints'" in capsys.readouterr().err
    assert params.read_text() == text
