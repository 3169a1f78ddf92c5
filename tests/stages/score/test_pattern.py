"""The format reward, by hand."""

import pytest

from stages.score.pattern import check, matches

THINK = r"<think>.*</think>\s*<answer>.*</answer>"


@pytest.mark.parametrize(
    ("text", "arguments", "reward"),
    [
        ("<think>a\nb</think>\n<answer>c</answer>", {"patterns": THINK, "flags": ["dotall"]}, 1.0),
        ("<think>a\nb</think>\n<answer>c</answer>", {"patterns": THINK}, 0.0),
        ("<think>a</think><answer>c</answer>!", {"patterns": THINK}, 0.0),
        ("<think>a</think><answer>c</answer>!", {"patterns": THINK, "match": "search"}, 1.0),
        ("YES", {"patterns": "yes", "flags": ["ignore_case"]}, 1.0),
        ("a\n#### 5\nb", {"patterns": r"^#### \d$", "match": "search", "flags": ["multiline"]}, 1.0),
        ("a\n#### 5\nb", {"patterns": r"^#### \d$", "match": "search"}, 0.0),
    ],
)
def test_by_hand(text, arguments, reward):
    check(**arguments)
    assert matches([text], **arguments) == [reward]


def test_weights_add_up():
    patterns = [{"pattern": "a", "weight": 0.5}, {"pattern": "b", "weight": -0.25}, {"pattern": "c"}]
    texts = ["a", "ab", "abc", "x"]
    assert matches(texts, patterns=patterns, match="search") == [0.5, 0.25, 1.25, 0.0]


def test_the_tail_of_the_prompt():
    arguments = {"patterns": THINK, "prompt_tail": ["<think>", None]}
    text = "a</think><answer>b</answer>"
    assert matches([text, text], with_prompt_tail=True, **arguments) == [1.0, 0.0]
    assert matches([text, text], **arguments) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"patterns": "("}, "does not compile"),
        ({"patterns": []}, "patterns is a pattern"),
        ({"patterns": [{"weight": 1}]}, "an entry of patterns"),
        ({"patterns": [{"pattern": "a", "weight": "x"}]}, "the weight of 'a'"),
        ({"patterns": "a", "match": "start"}, "match is full or search"),
        ({"patterns": "a", "flags": ["verbose"]}, "flags is a list"),
        ({"patterns": "a", "flags": "dotall"}, "flags is a list"),
        ({"patterns": "a", "with_prompt_tail": 1}, "true or false"),
    ],
)
def test_wrong_arguments(arguments, told):
    with pytest.raises(ValueError, match=told):
        check(**arguments)
