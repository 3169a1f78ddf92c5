"""Rows in every shape that TRL takes, as one conversation with two answers; and rows that are refused."""

import pytest

from stages.preferences.shapes import ShapeError, pair_of


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


SYSTEM = {"role": "system", "content": "Be kind."}
LONG = [SYSTEM, user("Hi"), assistant("Hello"), user("Why?")]
HH = "\n\nHuman: Hi there\n\nAssistant: Hello.\n\nHuman: Why?\n\nAssistant:"
HH_TURNS = [user("Hi there"), assistant("Hello."), user("Why?")]

SHAPES = {
    "text": ({"prompt": "Why?", "chosen": "So.", "rejected": " No"}, [user("Why?")], "So.", " No"),
    "conversation": (
        {"prompt": LONG, "chosen": [assistant("So.")], "rejected": [assistant("No")]},
        LONG,
        "So.",
        "No",
    ),
    "keys that are null in Parquet": (
        {"prompt": [user("Why?") | {"name": None}], "chosen": [assistant("So.")], "rejected": [assistant("No")]},
        [user("Why?")],
        "So.",
        "No",
    ),
    "whole conversations": (
        {"chosen": [*LONG, assistant("So.")], "rejected": [*LONG, assistant("No")]},
        LONG,
        "So.",
        "No",
    ),
    "transcripts": ({"chosen": f"{HH} So.\n", "rejected": f"{HH}  No"}, HH_TURNS, "So.\n", " No"),
    "transcripts without the first blank line": (
        {"chosen": f"{HH.lstrip()} So.", "rejected": f"{HH.lstrip()} No"},
        HH_TURNS,
        "So.",
        "No",
    ),
    "transcript as the prompt": ({"prompt": HH, "chosen": " So.", "rejected": "No"}, HH_TURNS, "So.", "No"),
    "transcript as the prompt, with a space": (
        {"prompt": f"{HH} ", "chosen": "So.", "rejected": "No"},
        HH_TURNS,
        "So.",
        "No",
    ),
    "text with a shared prefix": (
        {"chosen": "The sky is blue today.", "rejected": "The sky is blunt."},
        [user("The sky is")],
        "blue today.",
        "blunt.",
    ),
    "one is the beginning of the other": (
        {"chosen": "The sky is", "rejected": "The sky is blunt."},
        [user("The sky")],
        "is",
        "is blunt.",
    ),
    "text whose prefix ends a line": (
        {"chosen": "Why?\n\nSo.", "rejected": "Why?\n\nNo"},
        [user("Why?")],
        "So.",
        "No",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shape(shape):
    row, turns, chosen, rejected = SHAPES[shape]
    pair = pair_of(row)
    assert (pair.turns, pair.chosen, pair.rejected, pair.margin) == (turns, chosen, rejected, None)


@pytest.mark.parametrize(("margin", "found"), [(0.5, 0.5), (2, 2.0), (-1.0, -1.0)])
def test_margin(margin, found):
    assert pair_of({"prompt": "a", "chosen": "b", "rejected": "c", "margin": margin}).margin == found


TEXT = {"prompt": "Why?", "chosen": "So.", "rejected": "No"}
CHAT = {"prompt": [user("Why?")], "chosen": [assistant("So.")], "rejected": [assistant("No")]}
WHOLE = {"chosen": [user("Why?"), assistant("So.")], "rejected": [user("Why?"), assistant("No")]}

REFUSED = {
    "no rejected": ({"prompt": "Why?", "chosen": "So."}, "no column rejected; it has prompt, chosen. Columns are"),
    "neither": ({"question": "Why?", "answer": "So."}, "no column chosen and rejected; it has question, answer"),
    "null": (TEXT | {"rejected": None}, "rejected is null; fill it or remove the row"),
    "number": (TEXT | {"chosen": 3}, "chosen is int; it has to be text or a list"),
    "one turn without a list": (TEXT | {"chosen": assistant("So.")}, "chosen is dict; it has to be text or a list"),
    "empty text": (TEXT | {"chosen": ""}, "chosen is empty; fill it or remove the row"),
    "blank prompt": (TEXT | {"prompt": " \n"}, "prompt is empty"),
    "empty list": (CHAT | {"prompt": []}, "prompt is empty"),
    "mixed": (TEXT | {"prompt": [user("Why?")]}, "prompt is a conversation, chosen is text, rejected is text: make"),
    "prompt twice": (
        WHOLE | {"prompt": "Why?"},
        "prompt is text, chosen is a conversation, rejected is a conversation: make all text or all conversations, "
        "or leave out a prompt that chosen holds anyway",
    ),
    "conversation with its prompt twice": (WHOLE | {"prompt": [user("Why?")]}, "chosen has 2 turns; an answer to"),
    "turn without content": (CHAT | {"chosen": [{"role": "assistant"}]}, "chosen, turn 1: expected {role, content}"),
    "turn that is text": (CHAT | {"chosen": ["So."]}, "chosen, turn 1: expected {role, content}, found So."),
    "unknown role": (CHAT | {"prompt": [{"role": "gpt", "content": "a"}]}, "prompt, turn 1: role is 'gpt'; roles are"),
    "content of parts": (
        CHAT | {"prompt": [{"role": "user", "content": [{"type": "image"}]}]},
        "prompt, turn 1: content is a list; it has to be a text",
    ),
    "late system": (
        CHAT | {"prompt": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]},
        "prompt, turn 2: a system turn can only be the first; move it",
    ),
    "empty content": (CHAT | {"rejected": [assistant(" ")]}, "rejected, turn 1: content is empty"),
    "tool calls": (
        CHAT | {"chosen": [assistant("a") | {"tool_calls": [1]}]},
        "chosen, turn 1: tool_calls would be lost",
    ),
    "answer by the user": (CHAT | {"chosen": [user("So.")]}, "chosen has to end with an assistant turn"),
    "prompt that the assistant ends": (
        CHAT | {"prompt": [user("Why?"), assistant("Well,")]},
        "the turn before the answer is of the role assistant; it has to be the user's",
    ),
    "only an answer": ({"chosen": [assistant("a")], "rejected": [assistant("b")]}, "chosen has to end with an assist"),
    "two answers in one": (CHAT | {"chosen": [assistant("a"), assistant("b")]}, "chosen has 2 turns; an answer to a"),
    "no shared conversation": (
        WHOLE | {"rejected": [user("Who?"), assistant("No")]},
        "chosen and rejected differ before the last turn: there is no shared prompt",
    ),
    "no shared transcript": (
        {"chosen": f"{HH} So.", "rejected": f"{HH.replace('Why', 'Who')} No"},
        "chosen and rejected differ before the last turn",
    ),
    "transcripts of other lengths": (
        {"chosen": f"{HH} So.", "rejected": f"{HH} So.\n\nHuman: Yes?\n\nAssistant: No"},
        "chosen and rejected differ before the last turn",
    ),
    "transcript that the human ends": (
        {"chosen": "\n\nHuman: a\n\nAssistant: b\n\nHuman: c", "rejected": "\n\nHuman: a\n\nAssistant: d"},
        "chosen has to end with an assistant turn",
    ),
    "transcript with an empty answer": (
        {"chosen": f"{HH} ", "rejected": f"{HH} So."},
        "turn 4 of the transcript: content is empty",
    ),
    "one transcript": ({"chosen": f"{HH} So.", "rejected": "No"}, 'the other does not begin with "Human:"'),
    "turns in an answer to a transcript": (
        {"prompt": HH, "chosen": "So.\n\nHuman: a\n\nAssistant: b", "rejected": "No"},
        "chosen has 3 turns; an answer to a prompt is one assistant turn",
    ),
    "no shared prefix": (
        {"chosen": "So it is", "rejected": "No it is not"},
        "chosen and rejected have no shared prefix that could be the prompt; add a column prompt",
    ),
    "equal text": (TEXT | {"rejected": "So."}, "chosen and rejected are equal: such a pair says nothing"),
    "equal answers": (CHAT | {"rejected": [assistant("So.")]}, "chosen and rejected are equal"),
    "equal conversations": (WHOLE | {"rejected": WHOLE["chosen"]}, "chosen and rejected are equal"),
    "equal text without a prompt": ({"chosen": "a b", "rejected": "a b"}, "chosen and rejected are equal"),
    "margin null": (TEXT | {"margin": None}, "margin is None; give every row a finite number, or remove the column"),
    "margin text": (TEXT | {"margin": "1"}, "margin is '1'; give"),
    "margin truth": (TEXT | {"margin": True}, "margin is True; give"),
    "margin infinite": (TEXT | {"margin": float("inf")}, "margin is inf; give"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    row, message = REFUSED[case]
    with pytest.raises(ShapeError) as caught:
        pair_of(row)
    assert message in str(caught.value)
