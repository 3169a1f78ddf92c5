"""Exact match, by hand."""

import pytest

from stages.score.exact_match import check, exact_match
from stages.score.outcome import Unscorable


@pytest.mark.parametrize(
    ("answer", "gold", "arguments", "reward"),
    [
        ("Paris", "Paris", {}, 1.0),
        (" Paris\n", "Paris ", {}, 1.0),
        ("New  York", "New York", {}, 1.0),
        ("New  York", "New York", {"strip_spaces": False}, 0.0),
        ("paris", "Paris", {}, 0.0),
        ("paris", "Paris", {"ignore_case": True}, 1.0),
        ("STRASSE", "straße", {"ignore_case": True}, 1.0),
        ("Paris.", "Paris", {}, 0.0),
        ("«Paris»!", "Paris", {"ignore_punctuation": True}, 1.0),
        ("It is Paris", "Paris", {}, 0.0),
        ("<answer>Paris</answer>", "Paris", {"extract": {"tag": "answer"}}, 1.0),
        ("Paris", "Paris", {"extract": {"tag": "answer"}}, 0.0),
        ("Paris", "Paris", {"extract": {"tag": "answer"}, "missing_reward": -0.5}, -0.5),
        ("5", 5, {}, 1.0),
        ("B", ["A", "B"], {}, 1.0),
        ("C", ["A", "B"], {}, 0.0),
        ("A", "so #### A", {"gold_extract": {"after": "####"}}, 1.0),
        ("\ufb01ne", "fine", {}, 1.0),
    ],
)
def test_by_hand(answer, gold, arguments, reward):
    check(**arguments)
    assert exact_match([answer], answer=[gold], **arguments) == [reward]


def test_a_conversation_and_what_its_template_opened():
    turns = [{"role": "assistant", "content": "Paris</answer>"}]
    given = {"answer": ["Paris"], "prompt_tail": ["<answer>"], "extract": {"tag": "answer"}}
    assert exact_match([turns], **given) == [1.0]


@pytest.mark.parametrize("gold", [None, "", "  ", []])
def test_a_row_without_a_golden_answer_cannot_be_scored_and_others_can(gold):
    rewards = exact_match(["x", "x"], answer=[gold, "x"])
    assert isinstance(rewards[0], Unscorable)
    assert rewards[1] == 1.0


def test_another_column_and_one_that_is_not_there():
    assert exact_match(["x"], column="label", label=["x"]) == [1.0]
    with pytest.raises(ValueError, match=r"no column 'label'; they have answer, prompts"):
        exact_match(["x"], column="label", answer=["x"], prompts=["p"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"extract": "middle"}, "extract: 'middle' is no rule"),
        ({"gold_extract": {"after": ""}}, "gold_extract"),
        ({"missing_reward": float("nan")}, "missing_reward"),
        ({"missing_reward": 2.0}, "at most 1"),
        ({"ignore_case": "yes"}, "ignore_case is true or false"),
        ({"column": 3}, "column is the name"),
    ],
)
def test_wrong_arguments(arguments, told):
    with pytest.raises(ValueError, match=told):
        check(**arguments)
