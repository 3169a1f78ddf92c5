"""The embedded task's checks: answers that meet each kind, answers that do not, and the reward made of them."""

import pytest

from stages.score.constraints import (
    CHECKS,
    MIN_WORDS,
    NEEDS_END,
    count_sentences,
    has_substance,
    is_met,
    outcomes,
    parts,
    reward,
    words,
)

# kind: (number, text, answers that meet it, answers that do not)
TABLE = {
    "lowercase": (
        None,
        None,
        ["use a sharp knife.", "cut it into 3 pieces, then eat"],
        ["Use a sharp knife.", "use a sharp knifE.", "123!", ""],
    ),
    "uppercase": (
        None,
        None,
        ["USE A SHARP KNIFE.", "CUT IT INTO 3 PIECES!"],
        ["USE A SHARP KNIFe.", "use a sharp knife", "123!", ""],
    ),
    "no_commas": (None, None, ["Use a sharp knife.", "Wash; then cut."], ["Wash, then cut.", "1,000 times"]),
    "max_words": (
        5,
        None,
        ["One two three four five.", "don't do that", ""],
        ["One two three four five six.", "a b c d e f g"],
    ),
    "min_words": (
        5,
        None,
        ["One two three four five.", "a b c d e f g"],
        ["One two three four.", "don't do that now", ""],
    ),
    "sentences": (
        2,
        None,
        ["Wash it. Cut it.", "Is it ripe? Cut it!", 'Wash it. "Cut it."', "Use 1.5 cups. Stir."],
        ["Wash it.", "Wash it. Cut it. Eat it.", "Wash it. Cut it", "", "Wash it. 2."],
    ),
    "keyword": (
        None,
        "fresh",
        ["Keep it fresh.", "FRESH tomatoes", '"fresh"'],
        ["Keep it refreshed.", "freshly cut", "Keep it cool."],
    ),
    "avoid_word": (
        None,
        "the",
        ["Cut a tomato there.", "Other ways exist", ""],
        ["Cut the tomato.", "THE tomato", "a tomato (the ripe one)"],
    ),
    "title": (
        None,
        None,
        ["<<Ripe tomatoes>>\nUse a knife.", " <<a>> go", "<<Step 1>> Cut."],
        ["<<Ripe tomatoes>>", "<< >> Use a knife.", "Use <<a>> knife.", "<Title> Cut.", "<<Title> Cut."],
    ),
    "bullets": (
        2,
        None,
        ["* wash\n* cut", "Do this:\n  - wash\n  - cut", "• wash\n\n• cut"],
        ["* wash", "* wash\n* cut\n* eat", "*wash*\n*cut*", "* wash * cut", "* \n* "],
    ),
    "postscript": (
        None,
        None,
        ["Use a knife.\nP.S. Wash it.", "Cut. P.S.: enjoy", "Cut.\n\nP. S. Eat it soon.\n"],
        ["P.S. Wash it.", "Use a knife.\nP.S.", "Cut.\nP.S. Wash it.\nThen dry it.", "Cut. PS wash it"],
    ),
    "start_phrase": (
        None,
        "In short",
        ["In short, cut it.", " in short cut it", "IN SHORT"],
        ["Cut it in short.", "In  short, cut it.", "", '"In short" cut'],
    ),
    "end_phrase": (
        None,
        "That is all.",
        ["Cut it. That is all.", "Cut it. that is all", "That is all. "],
        ["That is all. Cut it.", "That is all!", "", "That is almost all."],
    ),
    "ends_question": (None, None, ["Is it ripe?", "Cut it. Ready? \n"], ["Cut it.", "Is it ripe? Yes.", "", "Ripe?)"]),
    "quotation": (
        None,
        None,
        ['"Use a knife."', ' "Cut it, then eat it." \n'],
        ['"Use a knife.', "Use a knife.", '"Cut" and "eat"', '""', "'Use a knife.'"],
    ),
    "exclamation": (None, None, ["Cut it!", "Wow! A knife."], ["Cut it.", "", "Cut it?"]),
    "highlight": (
        None,
        None,
        ["Use a *sharp* knife.", "**Cut** it", "*a b*"],
        ["* wash\n* cut", "Use a *sharp knife.", "2 * 3 * 4", "*\nknife*"],
    ),
    "parentheses": (
        None,
        None,
        ["Cut it (slowly).", "(It is ripe) cut", "((a))"],
        ["Cut it (1).", "Cut it ().", "Cut it :)", "Cut (it"],
    ),
    "digits": (None, None, ["Cut it into 3 pieces.", "At 5pm"], ["Cut it into three pieces.", ""]),
    "json": (
        None,
        None,
        ['{"answer": "Cut it."}', ' {"answer": [1, 2]}\n'],
        ['{"answer": "a", "why": 1}', '{"Answer": "a"}', '["answer"]', '"answer"', '{"answer": "a"', "", "Sure: {}"],
    ),
}


def constraint(kind):
    number, text, *_ = TABLE[kind]
    return {"kind": kind, "number": number, "text": text}


def cases(column):
    return [
        pytest.param(kind, answer, id=f"{kind}-{n}") for kind in TABLE for n, answer in enumerate(TABLE[kind][column])
    ]


def test_the_table_has_every_kind_twice_on_both_sides():
    assert set(TABLE) == set(CHECKS)
    assert [kind for kind, (_, _, good, bad) in TABLE.items() if min(len(good), len(bad)) < 2] == []


@pytest.mark.parametrize(("kind", "answer"), cases(2))
def test_answer_meets(kind, answer):
    assert is_met(constraint(kind), answer, "stop") is True


@pytest.mark.parametrize(("kind", "answer"), cases(3))
def test_answer_does_not_meet(kind, answer):
    assert is_met(constraint(kind), answer, "stop") is False


def test_kinds_that_can_only_be_judged_at_the_end():
    length, ending = {"max_words", "sentences", "bullets"}, {"postscript", "end_phrase", "ends_question"}
    assert length | ending | {"quotation", "json"} == NEEDS_END


@pytest.mark.parametrize("kind", list(TABLE))
def test_cut_off_answer_fails_exactly_the_kinds_that_need_an_end(kind):
    good = TABLE[kind][2]
    assert [is_met(constraint(kind), answer, "length") for answer in good] == [kind not in NEEDS_END] * len(good)


@pytest.mark.parametrize(
    "kind", ["keyword", "title", "start_phrase", "min_words", "digits", "exclamation", "highlight"]
)
def test_kinds_that_no_later_word_can_undo_do_not_need_an_end(kind):
    assert kind not in NEEDS_END
    assert all(is_met(constraint(kind), answer + " and more, (of) it", "length") for answer in TABLE[kind][2])


def test_cut_off_answer_does_not_meet_what_it_did_not_meet_before():
    for kind in TABLE:
        assert not any(is_met(constraint(kind), answer, "length") for answer in TABLE[kind][3])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Don't cut: it's ripe!", ["don't", "cut", "it's", "ripe"]),
        ("3 tomatoes, 1kg", ["3", "tomatoes", "1kg"]),
        ("'quoted'", ["quoted"]),
        ("...", []),
    ],
)
def test_words(text, found):
    assert words(text) == found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("...", 0),
        ("Cut", 1),
        ("Cut. Eat", 2),
        ("Cut?! Eat.", 2),
        ("(Cut.) Eat.", 2),
        ("a.b", 1),
        ("Cut. 3.", 1),
    ],
)
def test_count_sentences(text, count):
    assert count_sentences(text) == count


@pytest.mark.parametrize(
    ("answer", "subject", "expected"),
    [
        ("Cut the ripe tomato with care.", "tomato", True),  # six different words
        ("Cut the tomato with care.", "tomato", False),  # five
        ("Cut the ripe tomatoes with care.", "tomato", True),
        ("TOMATO: cut it with great care.", "tomato", True),
        ("Cut the ripe pepper with care.", "tomato", False),
        ("tomato tomato tomato tomato tomato tomato tomato tomato", "tomato", False),
        ("tomato tomatoes tomato's Tomato TOMATO tomatoes tomato", "tomato", False),
        ("cut cut the the ripe ripe tomato tomato with with", "tomato", False),
        ("Freeze berries on a flat tray.", "berry", True),  # plural with another ending
        ("We baked it for one hour.", "bake", True),  # past tense
        ("Drink it from a big cup.", "tea", False),
        ("A cup of tea is good.", "tea", True),
        ("", "tomato", False),
    ],
)
def test_substance(answer, subject, expected):
    assert has_substance(answer, subject) is expected


def test_min_words_of_the_table_above():
    assert MIN_WORDS == 6


ROWS = {
    "completions": ["Cut the ripe tomato, then eat it.", "Tomato!", "Cut the ripe tomato and eat it"],
    "constraints": [
        [{"kind": "no_commas", "number": None, "text": None}, {"kind": "keyword", "number": None, "text": "ripe"}],
        [{"kind": "exclamation", "number": None, "text": None}],
        [{"kind": "max_words", "number": 20, "text": None}, {"kind": "no_commas", "number": None, "text": None}],
    ],
    "subject": ["tomato", "tomato", "tomato"],
    "finish_reason": ["stop", "stop", "length"],
}
MET = [
    {"substance": 1.0, "no_commas": 0.0, "keyword": 1.0},
    {"substance": 0.0, "exclamation": 1.0},
    {"substance": 1.0, "max_words": 0.0, "no_commas": 1.0},
]


def test_parts_of_hand_computed_rows():
    assert parts(**ROWS) == MET


def test_reward_is_the_mean_of_the_parts():
    assert reward(**ROWS) == pytest.approx([2 / 3, 1 / 2, 2 / 3], abs=1e-15)


def test_reward_ignores_columns_it_does_not_know():
    extra = {"prompts": ["?"] * 3, "completion_ids": [[1]] * 3, "question": ["?"] * 3}
    assert reward(**ROWS, **extra) == reward(**ROWS)


def test_outcomes_without_constraints_are_substance_alone():
    assert outcomes("Cut the ripe tomato with care.", [], "tomato", "stop") == {"substance": True}


def test_rows_of_different_number_are_an_error():
    with pytest.raises(ValueError, match="shorter"):
        reward(**ROWS | {"subject": ["tomato"]})


@pytest.mark.parametrize("answer", ["[" * 20_000, '{"answer": ' + "1" * 5_000 + "}"], ids=["nested", "long number"])
def test_answer_that_the_json_parser_gives_up_on_is_an_answer_that_is_not_json(answer):
    assert is_met(constraint("json"), answer, "stop") is False


@pytest.mark.parametrize("answer", ["In shorts we cut it.", "In shortest form: cut it."])
def test_start_phrase_is_whole_words(answer):
    assert is_met(constraint("start_phrase"), answer, "stop") is False


def test_a_completion_may_be_a_turn_as_of_a_conversation():
    columns = {"constraints": [[{"kind": "no_commas", "number": None, "text": None}]], "subject": ["tea"]}
    text = "Tea is what a kettle is for"
    as_text = reward([text], finish_reason=["stop"], **columns)
    assert reward([[{"role": "assistant", "content": text}]], finish_reason=["stop"], **columns) == as_text == [1.0]
