"""Rewards for existing rollouts: what is read, and what is refused with its place."""

import pytest

from stages.common.errors import StageError
from stages.rescore.rewards_file import read_rewards


def write(folder, text, name="mine.yaml"):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_functions_are_named_after_themselves():
    found = read_rewards(["my.module:brief", "own/rewards.py:polite"])
    assert {name: one.function for name, one in found.rewards.items()} == {
        "brief": "my.module:brief",
        "polite": "own/rewards.py:polite",
    }
    assert {one.weight for one in found.rewards.values()} == {1.0}
    assert found.place("brief") == "--rewards: brief"


INNER = "brief: {function: 'm:f', weight: 2, arguments: {limit: 5e-1}}\npolite: {model: helpful, normalise: true}\n"


@pytest.mark.parametrize("text", [INNER, "rewards:\n" + "".join(f"  {line}\n" for line in INNER.splitlines())])
def test_a_file_with_or_without_the_top_key(tmp_path, text):
    path = write(tmp_path, text)
    found = read_rewards([path])
    assert list(found.rewards) == ["brief", "polite"]
    assert found.rewards["brief"].weight == 2.0
    assert found.rewards["brief"].arguments == {"limit": 0.5}
    assert found.rewards["polite"].model == "helpful"
    assert found.place("brief") == f"{path}: " + ("rewards.brief" if text.startswith("rewards") else "brief")


def test_a_reward_may_be_called_rewards(tmp_path):
    assert list(read_rewards([write(tmp_path, "rewards: {function: 'm:f'}")]).rewards) == ["rewards"]
    inner = read_rewards([write(tmp_path, "rewards: {function: {function: 'm:f'}}")])
    assert list(inner.rewards) == ["function"]


def test_messages_of_the_score_stage_get_the_place(tmp_path):
    path = write(tmp_path, "rewards: {brief: {function: 'm:f'}}")
    found = read_rewards([path])
    assert found.placed("params.yaml: score.rewards.brief.function = 'm:f': no") == (
        f"{path}: rewards.brief.function = 'm:f': no"
    )
    assert found.placed("score.rewards.brief.function raised X").startswith(f"{path}: rewards.brief.function raised")
    assert found.placed("score.max_failed stays") == "score.max_failed stays"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("brief: {function: 'm:f', weigth: 2}", ": brief.weigth: no such option"),
        ("rewards: {brief: {function: 'm:f', weight: heavy}}", ": rewards.brief.weight = 'heavy': "),
        ("brief: {function: nonsense}", ": brief.function = 'nonsense': "),
        ("brief: {}", ": brief: a reward is either a `function` or a `model`"),
        ("brief: {function: 'm:f', model: x}", ": brief: a reward is either a `function` or a `model`"),
        ("brief: {model: x, arguments: {a: 1}}", ": brief: arguments: for a `function`"),
        ("brief: {function: 'm:f'}\nbrief: {function: 'm:g'}", "['brief'] stand(s) twice"),
        ("my reward: {function: 'm:f'}", "names are letters, digits and underscores"),
        ("1: {function: 'm:f'}", ": 1: the name of a reward is a text"),
        ("brief: m:f", ": brief = 'm:f': "),
        ("", "expected rewards by name"),
        ("rewards: {}", "expected rewards by name"),
        ("- brief", "expected rewards by name"),
        ("brief: {function: 'm:f", "not valid YAML"),
        ("brief: {function: 'm:f', weight: .inf}", ": brief.weight = inf: "),
        ("brief: {function: 'm:f', limits: {row_seconds: 0}}", ": brief.limits.row_seconds = 0: "),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(StageError) as error:
        read_rewards([path])
    assert message in str(error.value)
    assert str(error.value).startswith(path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "--rewards is missing"),
        (["brief"], "--rewards 'brief': expected a YAML file"),
        (["a:f", "b:f"], "two functions are called f"),
        (["mine.yaml", "a:f"], "one YAML file, or functions, not both"),
        (["nowhere.yaml"], "--rewards nowhere.yaml: no such file"),
    ],
)
def test_a_bad_option_is_named(tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StageError) as error:
        read_rewards(given)
    assert message in str(error.value)


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xff\xfe\x00brief")
    with pytest.raises(StageError, match="not valid YAML"):
        read_rewards([str(path)])
