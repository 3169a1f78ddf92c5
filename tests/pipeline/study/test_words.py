"""The small world: its gold score by hand, and that a careless answer leaves room above it."""

import random

import pytest

from pipeline.study.runs.words import END, NUMBERS, SUBJECTS, VOCABULARY, all_prompts, careless_answer, gold, gold_of

PROMPT = "cat sea 3 :"


@pytest.mark.parametrize(
    ("completion", "finish", "expected"),
    [
        ("paw wave claw", "stop", 4.0),  # three words, two changes of subject
        ("paw claw fur", "stop", 3.0),  # no change of subject
        ("paw paw", "stop", 0.5),  # one word, and the same again
        ("paw cup wave", "stop", 1.5),  # a word of another subject, after which no change counts
        ("paw wave claw tide", "stop", 3.5),  # one more than asked for, which is no hit
        ("paw", "length", 0.0),  # without an end
        ("", "stop", 0.0),
        ("cat 3 :", "stop", -1.5),  # words of prompts are no answers
    ],
)
def test_gold_by_hand(completion, finish, expected):
    assert gold_of(PROMPT, completion, finish) == pytest.approx(expected)
    assert gold([PROMPT], [completion], [finish], sample=[0]) == [pytest.approx(expected)]


def test_prompts_are_all_pairs_and_numbers():
    prompts = all_prompts()
    assert len(prompts) == len(set(prompts)) == len(SUBJECTS) * (len(SUBJECTS) - 1) * len(NUMBERS)
    assert {word for prompt in prompts for word in prompt.split()} <= set(VOCABULARY)
    assert len(VOCABULARY) == len(set(VOCABULARY))
    assert VOCABULARY[0] == END


def test_careless_answers_leave_room():
    chance = random.Random(3)
    prompts = all_prompts()
    scores = [gold_of(prompt, careless_answer(prompt, chance), "stop") for prompt in prompts]
    best = sum(1.5 * int(prompt.split()[2]) - 0.5 for prompt in prompts) / len(prompts)
    assert 0.5 < sum(scores) / len(scores) < best / 2
