"""Prompts that the model's template or its positions do not take, each with its error."""

from pathlib import Path

import pytest

from tests.stages.prepare.project import write
from tests.stages.prepare.refused import GOOD, TALK, assert_refused, with_earlier_table


@pytest.fixture
def project(tmp_path, monkeypatch):
    return with_earlier_table(tmp_path, monkeypatch)


RENDERING = {
    "refuses system": (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}x",
        {"system": "Be kind."},
        ("prepare.prompts.system: the model's chat template refuses these turns: no system; null leaves", "row 1"),
    ),
    "refuses shots": (
        "{% if messages | length > 1 %}{{ raise_exception('one turn') }}{% endif %}x",
        {"few_shot": [{"user": "a", "assistant": "b"}]},
        ("prepare.prompts.few_shot: the model's chat template refuses these turns: one turn; []", "data.jsonl: row 1"),
    ),
    "refuses everything": (
        "{{ raise_exception('never') }}",
        {},
        ("prepare.model.chat_template: the model's chat template refuses these turns: never", "data.jsonl: row 1"),
    ),
    "breaks": (
        "{{ messages[0]['content'] + 1 }}",
        {},
        ("prepare.model.chat_template", "TypeError", "data.jsonl: row 1"),
    ),
    "no template": (None, {"chat": "template"}, ("prepare.prompts.chat = 'template'", "set chat to auto or raw")),
}


@pytest.mark.parametrize("case", RENDERING)
def test_templates_that_do_not_take_the_prompts(project, case):
    template, options, parts = RENDERING[case]
    project.template(template)
    assert_refused(project, parts, lambda: project.of_rows(GOOD, **options))


@pytest.mark.parametrize(("template", "chat", "why"), [(None, "auto", "no chat template"), ("x", "raw", "chat is raw")])
def test_conversations_need_a_template(project, template, chat, why):
    project.template(template)
    parts = ("prepare.model.chat_template: prompts are turns of a conversation", why, "data.jsonl: row 1")
    assert_refused(project, parts, lambda: project.of_rows(TALK, chat=chat))


LONG = [*GOOD, {"prompt": "seven " * 300, "answer": "7"}]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (
            {},
            (
                "1 of 5 rendered",
                "more than 504 tokens (the model's 512 positions less",
                "row 5) has",
                "too_long to drop",
            ),
        ),
        ({"max_tokens": 100}, ("more than 100 tokens (prepare.prompts.max_tokens)", "shorten them, raise the limit")),
        ({"max_tokens": 1}, ("5 of 5 rendered prompts",)),
        ({"max_tokens": 1, "too_long": "drop"}, ("heldout_prompts = 1: there are 0 prompts",)),
    ],
)
def test_too_long(project, options, parts):
    assert_refused(project, parts, lambda: project.of_rows(LONG, **options))


def test_all_held_out_are_too_long(project):
    write(Path("test.jsonl"), LONG[4:])
    options = {"file": {"heldout": "test.jsonl", "heldout_prompts": None}, "too_long": "drop"}
    assert_refused(project, ("no heldout prompt is left", "504"), lambda: project.of_rows(GOOD, **options))


def test_no_room_for_an_answer(project):
    project.raw["rollout"]["max_new_tokens"] = 512
    parts = ("rollout.max_new_tokens = 512: the model has 512 positions", "lower it")
    assert_refused(project, parts, lambda: project.of_rows(GOOD))
