"""reasoning-gym's scorers: golden answers of all tasks get the full reward; scorers are given the extracted answer."""

import json
from decimal import Decimal

import pytest

from stages.score.gym import check, gym_reward
from stages.score.outcome import Unscorable

reasoning_gym = pytest.importorskip("reasoning_gym")  # its install needs a C compiler
DATASETS = pytest.importorskip("reasoning_gym.factory").DATASETS


def entry(task, seed=1):
    return reasoning_gym.create_dataset(task, size=1, seed=seed)[0]


def one(answer, task, given, config="{}", **arguments):
    (reward,) = gym_reward([answer], gym_task=[task], gym_config=[config], gym_entry=[given], **arguments)
    return reward


@pytest.mark.parametrize("task", sorted(set(DATASETS) - {"composite"}))
def test_golden_answers_of_all_tasks_get_the_full_reward(task):
    made = entry(task)
    answer, reward = (made["answer"], 1.0) if made["answer"] is not None else ("nonsense", 0.0)
    assert one(str(answer), task, json.dumps(made)) == pytest.approx(reward, abs=0.05)


def test_the_scorer_gets_the_extracted_answer():
    made = entry("chain_sum")
    sentence = f"Well, the sum is <answer>{made['answer']}</answer>, I think."
    assert one(sentence, "chain_sum", json.dumps(made), extract={"tag": "answer"}) == 1.0
    assert one(sentence, "chain_sum", json.dumps(made)) < 1.0
    assert one("none", "chain_sum", json.dumps(made), extract={"tag": "answer"}) == 0.0
    assert one("none", "chain_sum", json.dumps(made), extract="boxed", missing_reward=-1.0) == -1.0
    turns = [{"role": "assistant", "content": f"{made['answer']}</answer>"}]
    given = {
        "gym_task": ["chain_sum"],
        "gym_config": ["{}"],
        "gym_entry": [json.dumps(made)],
        "prompt_tail": ["<answer>"],
    }
    assert gym_reward([turns], extract={"tag": "answer"}, **given) == [1.0]


def test_the_scorer_is_that_of_the_config():
    """One decimal place: an answer may be off by 0.1; with the default of three by 0.001."""
    config = {"min_num_decimal_places": 1, "max_num_decimal_places": 1}
    made = reasoning_gym.create_dataset("decimal_arithmetic", size=1, seed=1, **config)[0]
    near = str(Decimal(made["answer"]) + Decimal("0.05"))
    assert one(near, "decimal_arithmetic", json.dumps(made), json.dumps(config)) == 1.0
    assert one(near, "decimal_arithmetic", json.dumps(made)) == 0.0
    for broken in ("no json", '{"no_such_option": 1}', '{"precision": 1}'):
        assert isinstance(one(near, "decimal_arithmetic", json.dumps(made), broken), Unscorable)


def test_no_memory_is_not_of_the_row(monkeypatch):
    def score(answer, given):
        if answer == given["answer"]:
            return 1.0
        raise MemoryError

    monkeypatch.setattr("stages.score.gym.scorer", lambda task, config: score)
    with pytest.raises(MemoryError):
        one("wrong", "chain_sum", json.dumps(entry("chain_sum")))


def test_a_wrong_answer_is_wrong():
    assert one("-1", "chain_sum", json.dumps(entry("chain_sum"))) < 1.0


@pytest.mark.parametrize(
    ("task", "given", "told"),
    [
        ("no_such_task", "{}", "no_such_task"),
        ("chain_sum", "not json", "JSONDecodeError"),
        ("chain_sum", "{}", "KeyError"),
        ("chain_sum", "[]", "TypeError"),
        ("chain_sum", json.dumps({"question": "q", "answer": "5", "metadata": None}), "AttributeError"),
        ("countdown", json.dumps({"question": "q", "answer": "1 + 1", "metadata": {}}), "'1 + 1' itself gets 0.01"),
    ],
)
def test_an_entry_that_cannot_be_scored_makes_its_row_unscorable(task, given, told):
    found = one("1 + 1", task, given)
    assert isinstance(found, Unscorable)
    assert told in found.reason


def test_a_scorer_that_raises(monkeypatch):
    def score(answer, given):
        return 1.0 if answer == given["answer"] else 1 / 0

    monkeypatch.setattr("stages.score.gym.scorer", lambda task, config: score)
    found = one("wrong", "chain_sum", json.dumps(entry("chain_sum")))
    assert isinstance(found, Unscorable)
    assert "the scorer of task 'chain_sum' raised ZeroDivisionError" in found.reason


def test_a_scorer_that_gives_no_number(monkeypatch):
    monkeypatch.setattr(
        "stages.score.gym.scorer",
        lambda task, config: lambda answer, given: 1.0 if answer == given["answer"] else float("nan"),
    )
    assert isinstance(one("wrong", "chain_sum", json.dumps(entry("chain_sum"))), Unscorable)


@pytest.mark.parametrize("arguments", [{"extract": "x"}, {"missing_reward": None}])
def test_wrong_arguments(arguments):
    check()
    with pytest.raises(ValueError, match=f"gym_reward: {next(iter(arguments))}"):
        check(**arguments)
