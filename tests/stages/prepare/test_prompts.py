"""The embedded task: the bank, its split, and constraints that one answer can meet."""

import itertools
from random import Random

import pytest

from stages.common.chat import render
from stages.common.params import Embedded, ParamsError
from stages.prepare.prompts.constraints import AVOIDED, KEYWORDS, KINDS, draw_constraints, phrase
from stages.prepare.prompts.embedded import make_prompts, question_bank, split_questions
from stages.score.constraints import CHECKS, has_substance, is_met, words

BANK = question_bank()


def settings(**changes):
    return Embedded(
        **({"train": 600, "heldout": 50, "constraints": dict.fromkeys(KINDS, 1.0), "two_constraints": 0.5} | changes)
    )


def test_bank_is_large_and_nothing_in_it_repeats():
    assert len(BANK) >= 300
    assert len({question for _, question in BANK}) == len(BANK)
    assert len({subject for subject, _ in BANK}) == len(BANK)


def test_subject_is_one_word_that_its_question_contains():
    assert [row for row in BANK if words(row[0]) != [row[0]]] == []
    assert [row for row in BANK if not any(word.startswith(row[0]) for word in words(row[1]))] == []


def test_questions_are_questions():
    assert [question for _, question in BANK if not question.endswith("?") or question.strip() != question] == []


def test_there_are_at_least_twelve_kinds():
    assert len(KINDS) >= 12


def test_every_kind_that_is_asked_for_is_checked_and_the_other_way_round():
    assert set(KINDS) == set(CHECKS)


def test_clashes_name_known_kinds_and_never_themselves():
    assert {name for kind in KINDS.values() for name in kind.clashes} <= set(KINDS)
    assert [name for name, kind in KINDS.items() if name in kind.clashes] == []


def test_keyword_and_avoided_word_are_never_the_same():
    assert not set(KEYWORDS) & set(AVOIDED)


@pytest.mark.parametrize("seed", [0, 1, 2, 12345])
@pytest.mark.parametrize("heldout", [1, 128, len(BANK) - 1])
def test_split_is_disjoint_and_loses_nothing(seed, heldout):
    train, held = split_questions(BANK, heldout, seed)
    assert len(held) == heldout
    assert not set(train) & set(held)
    assert sorted(train + held) == sorted(BANK)


def test_split_does_not_depend_on_the_order_of_the_bank():
    assert split_questions(BANK[::-1], 100, 3) == split_questions(BANK, 100, 3)


def test_split_depends_on_the_seed():
    assert set(split_questions(BANK, 100, 0)[1]) != set(split_questions(BANK, 100, 1)[1])


def test_more_held_out_questions_contain_the_fewer():
    assert set(split_questions(BANK, 50, 0)[1]) < set(split_questions(BANK, 100, 0)[1])


@pytest.mark.parametrize("heldout", [len(BANK), len(BANK) + 1])
def test_too_many_held_out_questions_are_refused(heldout):
    with pytest.raises(
        ParamsError, match=rf"prepare\.prompts\.embedded\.heldout = {heldout}: the bank has {len(BANK)}"
    ):
        split_questions(BANK, heldout, 0)


def test_same_seed_gives_the_same_rows():
    assert make_prompts(BANK, "train", 100, settings(), 5) == make_prompts(BANK, "train", 100, settings(), 5)


def test_other_seed_gives_other_constraints():
    one, other = (make_prompts(BANK, "train", 100, settings(), seed) for seed in (5, 6))
    same = sum(a["constraints"] == b["constraints"] for a, b in zip(one, other, strict=True))
    assert same < 20


def test_more_prompts_begin_with_the_same_ones():
    assert make_prompts(BANK, "train", 300, settings(), 5)[:100] == make_prompts(BANK, "train", 100, settings(), 5)


def test_questions_come_again_with_other_constraints():
    rows = make_prompts(BANK[:3], "train", 30, settings(), 0)
    assert [row["question"] for row in rows] == [question for _, question in BANK[:3]] * 10
    assert len({row["prompt"] for row in rows}) > 25
    assert len({row["prompt_id"] for row in rows}) == 30


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0, 0), (0.5, 250, 350), (1.0, 600, 600)])
def test_share_of_prompts_with_two_constraints(share, low, high):
    rows = make_prompts(BANK, "train", 600, settings(two_constraints=share), 0)
    assert {len(row["constraints"]) for row in rows} <= {1, 2}
    assert low <= sum(len(row["constraints"]) == 2 for row in rows) <= high


def test_prompt_is_the_question_and_each_constraint_in_words():
    for row in make_prompts(BANK, "heldout", 100, settings(), 0):
        assert row["prompt"] == " ".join([row["question"], *map(phrase, row["constraints"])])
        assert row["split"] == "heldout"
        assert row["prompt_id"].startswith("heldout-")


def test_draws_never_clash_repeat_or_take_the_subject_as_text():
    seen = set()
    for seed in range(3000):
        subject = KEYWORDS[seed % len(KEYWORDS)]
        drawn = draw_constraints(dict.fromkeys(KINDS, 1.0), 3, Random(seed), forbidden_text=subject)
        kinds = [constraint["kind"] for constraint in drawn]
        assert len(set(kinds)) == len(kinds) <= 3
        for one, other in itertools.permutations(kinds, 2):
            assert other not in KINDS[one].clashes
        assert subject not in [constraint["text"] for constraint in drawn]
        seen |= set(kinds)
    assert seen == set(KINDS)


def test_only_the_kinds_asked_for_are_drawn():
    for seed in range(100):
        drawn = draw_constraints({"digits": 1.0, "keyword": 1.0, "json": 1.0}, 2, Random(seed), forbidden_text="")
        assert {constraint["kind"] for constraint in drawn} <= {"digits", "keyword", "json"}


def every_parameter():
    for name, kind in KINDS.items():
        for number in kind.numbers or [None]:
            for text in kind.texts or [None]:
                yield {"kind": name, "number": number, "text": text}


def test_phrase_leaves_no_placeholder():
    for constraint in every_parameter():
        sentence = phrase(constraint)
        assert not any(mark in sentence for mark in ("{", "}", "None", "(s)")), sentence
        for value in (constraint["number"], constraint["text"]):
            assert value is None or str(value) in sentence or constraint["kind"] == "sentences"


@pytest.mark.parametrize(("number", "told"), [(1, "one sentence."), (2, "two sentences.")])
def test_numbers_of_sentences_are_words(number, told):
    assert phrase({"kind": "sentences", "number": number, "text": None}).endswith(told)


def answers():
    """Answers with substance that combine openings, bodies, extras, endings, cases and wrappings in every way."""
    bodies = [
        "Keep a ripe tomato on a cool shelf",
        "Keep a ripe tomato cool, dry",
        "Wash it. Keep a ripe tomato on a cool shelf",
        "Keep a ripe tomato on a cool shelf of your kitchen with a lot of room for air",
        "* Keep a ripe tomato\n* Use a cool shelf",
        "* Keep a ripe tomato on a cool shelf of your kitchen\n* Use a lot of room for air to pass",
    ]
    openings, extras = (
        ["", "<<My title>> ", "In short "],
        ["", " 3", " (yes)", " *now*", " go! Now", " *now* (on day 3)"],
    )
    endings = [".", "!", "?", ". Hope this helps.", ".\nP.S. Use a cool shelf"]
    wrappings = ["{}", '"{}"', '{{"answer": "{}"}}']
    cases = [str, str.lower, str.upper]
    for opening, body, extra, ending in itertools.product(openings, bodies, extras, endings):
        for wrapping, case in itertools.product(wrappings, cases):
            yield wrapping.format(case(opening + body + extra + ending))


def witnessed_pairs():
    parameters = {
        "max_words": (15, None),
        "min_words": (15, None),
        "sentences": (1, None),
        "bullets": (2, None),
        "keyword": (None, "keep"),
        "avoid_word": (None, "the"),
        "start_phrase": (None, "In short"),
        "end_phrase": (None, "Hope this helps."),
    }
    wanted = [
        dict(zip(("kind", "number", "text"), (kind, *parameters.get(kind, (None, None))), strict=True))
        for kind in KINDS
    ]
    pairs = set()
    for answer in filter(lambda answer: has_substance(answer, "tomato"), answers()):
        met = sorted(constraint["kind"] for constraint in wanted if is_met(constraint, answer, "stop"))
        pairs.update(itertools.combinations(met, 2))
    return pairs


def test_two_kinds_that_do_not_clash_can_be_met_by_one_answer():
    pairs = itertools.combinations(sorted(KINDS), 2)
    together = {(a, b) for a, b in pairs if a not in KINDS[b].clashes and b not in KINDS[a].clashes}
    assert len(together) > 50
    assert together - witnessed_pairs() == set()


class Chat:
    """A tokenizer with a chat template, as far as `render` goes."""

    chat_template = "set"

    def apply_chat_template(self, turns, *, tokenize, add_generation_prompt, **variables):
        assert tokenize is False
        text = "".join(f"<{turn['role']}>{turn['content']}</>" for turn in turns)
        return text + ("<assistant>" if add_generation_prompt else "")


class Plain:
    """A tokenizer of a base model."""

    chat_template = None


@pytest.mark.parametrize(
    ("tokenizer", "system", "text"),
    [
        (Chat(), "Be brief.", "<system>Be brief.</><user>Why?</><assistant>"),
        (Chat(), None, "<user>Why?</><assistant>"),
        (Chat(), "", "<user>Why?</><assistant>"),
        (Plain(), "Be brief.", "Be brief.\n\nWhy?\n"),
        (Plain(), None, "Why?\n"),
    ],
)
def test_render(tokenizer, system, text):
    assert render(tokenizer, "Why?", system) == text


def test_kinds_are_drawn_in_proportion_to_their_weights():
    weights = {"digits": 3.0, "keyword": 1.0}
    drawn = [draw_constraints(weights, 1, Random(seed), forbidden_text="")[0]["kind"] for seed in range(2000)]
    assert drawn.count("digits") / 2000 == pytest.approx(0.75, abs=0.04)
