"""Bad prompts, each with its error: it names the place and the remedy, and leaves the files of the run as they are."""

import datetime
from pathlib import Path

import polars as pl
import pytest

from tests.stages.prepare.project import write
from tests.stages.prepare.refused import GOOD, TALK, USER, assert_refused, with_earlier_table

MIXED = "bring all rows to one type"


def second(**changes):
    """Good rows, the second one changed."""
    return [GOOD[0], GOOD[1] | changes, *GOOD[2:]]


def talk(*turns):
    return [TALK[0], {"prompt": list(turns)}]


# rows or bytes, file name, options of prepare.prompts.file, the place, what is wrong and the remedy
SCHEMA = {
    "no prompt": ([{"question": "a"}] * 2, {}, "data.jsonl has no column prompt", "rename: {question: prompt}"),
    "messages": ([{"messages": [USER]}] * 2, {}, "data.jsonl has no column prompt", "rename: {messages: prompt}"),
    "null prompt": (second(prompt=None), {}, "data.jsonl: row 2: prompt is null", "fill it in or remove the row"),
    "late prompt": ([*GOOD, {"answer": "x"}], {}, "data.jsonl: row 5: prompt is null", "fill it in or remove"),
    "empty prompt": (second(prompt=" \n"), {}, "data.jsonl: row 2: prompt is empty", "fill it in or remove the row"),
    "number as prompt": (
        [{"prompt": 1}, {"prompt": 2}],
        {},
        "data.jsonl: column prompt is Int64",
        "a text or a list of",
    ),
    "text and turns": (
        second(prompt=[USER]),
        {},
        "data.jsonl: row 2: column prompt is a string in row 1 and a list in row 2",
        "make all prompts texts, or all of them lists of {role, content}",
    ),
    "string and integer": (
        second(answer=1),
        {},
        "data.jsonl: row 2: column answer is a string in row 1 and an integer in row 2",
        MIXED,
    ),
    "boolean and integer": (
        [r | {"x": v} for r, v in zip(GOOD, [1, 1, True, 0], strict=True)],
        {},
        "data.jsonl: row 3: column x is an integer in row 1 and a boolean in row 3",
        MIXED,
    ),
    "integer and number": (
        [r | {"x": v} for r, v in zip(GOOD, [1, 2, 2.5, 0], strict=True)],
        {},
        "data.jsonl: row 3: column x is an integer in row 1 and a number in row 3",
        "declare it: params.yaml: prepare.prompts.file.columns.x: number",
    ),
    "mixed list": (
        second(answer="1", x=[1, "a"]),
        {},
        "data.jsonl: row 2: column x[] is an integer and a string in one row",
        MIXED,
    ),
    "mixed inside": (
        [r | {"x": {"y": v}} for r, v in zip(GOOD, [1, 2, "a", 0], strict=True)],
        {},
        "data.jsonl: row 3: column x.y is an integer in row 1 and a string in row 3",
        MIXED,
    ),
    "large integer": (
        second(x=2**63),
        {},
        "data.jsonl: row 2: column x is 9223372036854775808, more than 64 bits hold",
        "write it as a string",
    ),
    "large integer inside": (
        second(x=[[-(2**63) - 1]]),
        {},
        "data.jsonl: row 2: column x[][] is -9223372036854775809",
        "write it as a string",
    ),
    "overflowing number": (
        b'{"prompt": "a", "x": 1.0}\n{"prompt": "b", "x": 1e999}\n',
        {},
        "data.jsonl: row 2: column x has NaN or infinity",
        "write null, or remove",
    ),
    "nothing in an object": (
        second(x={}),
        {},
        "data.jsonl: row 2: column x has nothing but objects without a key",
        "write null",
    ),
    "reserved name": (
        [r | {"completion": "x"} for r in GOOD],
        {},
        "data.jsonl: a column called 'completion' would take a name",
        "rename: {completion: my_completion}",
    ),
    "reserved by functions": (
        [r | {"completions": "x"} for r in GOOD],
        {},
        "a column called 'completions'",
        "rename: {completions: my_completions}",
    ),
    "reserved split": (
        [r | {"split": "test"} for r in GOOD],
        {},
        "a column called 'split'",
        "rename: {split: my_split}",
    ),
    "reserved beginning": (
        [r | {"reward/x": 1.0} for r in GOOD],
        {},
        "a column called 'reward/x'",
        "prepare.prompts.file.rename",
    ),
    "renamed to a reserved name": (
        GOOD,
        {"rename": {"answer": "kind"}},
        "a column called 'kind'",
        "prepare.prompts.file.rename",
    ),
    "unknown in rename": (
        GOOD,
        {"rename": {"answr": "x"}},
        "file.rename: data.jsonl has no column 'answr', only prompt, answer",
        "did you mean 'answer'?",
    ),
    "collision in rename": (
        GOOD,
        {"rename": {"answer": "prompt"}},
        "file.rename: data.jsonl: prompt and answer would both be 'prompt'",
        "rename one more",
    ),
    "declared and absent": (
        GOOD,
        {"columns": {"answer": "string", "level": "integer"}},
        "file.columns: data.jsonl has no column level",
        "only prompt, answer",
    ),
    "declared and absent in a row": (
        [*GOOD[:2], {"prompt": "x"}],
        {"columns": {"answer": "string"}},
        "data.jsonl: row 3: it lacks column answer",
        "write null",
    ),
    "undeclared": (GOOD, {"columns": {}}, "file.columns: data.jsonl has also answer", "declare them, or remove them"),
    "declared otherwise": (
        second(answer=1),
        {"columns": {"answer": "string"}},
        "data.jsonl: row 2: column answer is an integer (1), declared as string",
        "correct the row, or params.yaml: prepare.prompts.file.columns.answer",
    ),
    "declared number is text": (
        GOOD,
        {"columns": {"answer": "number"}},
        "data.jsonl: row 1: column answer is a string (0), declared as number",
        "correct the row",
    ),
    "whole number without an equal": (
        [r | {"x": 2**53 + 1} for r in GOOD],
        {"columns": {"answer": "string", "x": "number"}},
        "data.jsonl: row 1: column x is an integer (9007199254740993), declared as number",
        "correct the row",
    ),
    "own id twice": (
        [r | {"prompt_id": "a"} for r in GOOD],
        {},
        "data.jsonl: row 2: prompt_id 'a' is that of data.jsonl: row 1",
        "make them different",
    ),
    "own id empty": (second(prompt_id=""), {}, "data.jsonl: row 1: prompt_id is empty", "give each row one of its own"),
    "own id a number": (
        [r | {"prompt_id": n} for n, r in enumerate(GOOD)],
        {},
        "data.jsonl: row 1: column prompt_id is an integer (0), declared as string",
        "correct the row",
    ),
    "no turns": (talk(), {}, "data.jsonl: row 2: prompt is a conversation without turns", "fill it in or remove"),
    "assistant's last": (
        talk(USER, {"role": "assistant", "content": "Ho"}),
        {},
        "data.jsonl: row 2: the last turn of prompt is of the role assistant",
        "leave out the answer",
    ),
    "unknown role": (
        talk({"role": "human", "content": "Hi"}),
        {},
        "data.jsonl: row 2: prompt, turn 1: role is 'human'",
        "roles are system, user, assistant",
    ),
    "late system turn": (
        talk(USER, {"role": "system", "content": "x"}, USER),
        {},
        "data.jsonl: row 2: prompt, turn 2: a system turn can only be the first",
        "move it",
    ),
    "null content": (
        talk(USER, {"role": "user", "content": None}),
        {},
        "data.jsonl: row 2: prompt, turn 2: content is null",
        "it has to be a text",
    ),
    "tool calls": (
        talk(USER | {"name": "x"}),
        {},
        "data.jsonl: row 2: prompt, turn 1: name would be lost",
        "remove it",
    ),
    "turn without content": (
        [{"prompt": [{"role": "user"}]}] * 2,
        {},
        "data.jsonl: row 1: prompt, turn 1: expected {role, content}",
        "found",
    ),
    "turns of text": (
        [{"prompt": ["Hi"]}] * 2,
        {},
        "data.jsonl: row 1: prompt, turn 1: expected {role, content}",
        "found Hi",
    ),
    "more held out than there": (
        GOOD,
        {"heldout_prompts": 4},
        "file.heldout_prompts = 4: there are 4 prompts",
        "training needs some",
    ),
    "repetitions cannot be divided": (
        [*GOOD[:1] * 2, *GOOD[1:2] * 2],
        {"heldout_prompts": 1},
        "file.heldout_prompts = 1: rows that repeat a prompt stay together",
        "choose that, or remove",
    ),
    "more to train on than there": (GOOD, {"train_prompts": 4}, "file.train_prompts = 4", "there are only 3 (train)"),
    "no file": (None, {}, "data.jsonl: no such file", "relative to the project's folder"),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    return with_earlier_table(tmp_path, monkeypatch)


@pytest.mark.parametrize("case", SCHEMA)
def test_bad_rows(project, case):
    rows, options, place, remedy = SCHEMA[case]
    if rows is not None:
        write(Path("data.jsonl"), rows)
    options = {"train": "data.jsonl", "heldout_prompts": 1} | options
    assert_refused(project, (place, remedy), lambda: project.prepare(file=options))


CSV = "prompt,x,ok\na,1,true\nb,{},{}\n"
CSV_TYPES = {"x": "integer", "ok": "boolean"}


@pytest.mark.parametrize(
    ("x", "ok", "place"),
    [
        ("1.0", "true", "data.csv: row 3: column x is '1.0', declared as integer"),
        ("1_000", "true", "data.csv: row 3: column x is '1_000', declared as integer"),
        (" 1", "true", "data.csv: row 3: column x is ' 1', declared as integer"),
        ("nan", "true", "data.csv: row 3: column x is 'nan', declared as integer"),
        ("9223372036854775808", "true", "data.csv: row 3: column x is 9223372036854775808, more than 64 bits"),
        ("1", "yes", "data.csv: row 3: column ok is 'yes', declared as boolean"),
    ],
)
def test_bad_cells(project, x, ok, place):
    options = {"file": {"columns": CSV_TYPES}}
    assert_refused(project, (place,), lambda: project.of_rows(CSV.format(x, ok), "data.csv", **options))


NAN = float("nan")
TABLES = {
    "NaN": ({"x": [1.0, NAN]}, {}, "data.parquet: row 2: column x has NaN or infinity; write null"),
    "NaN inside": ({"x": [[{"y": 1.0}], [{"y": NAN}]]}, {}, "data.parquet: row 2: column x has NaN or infinity"),
    "declared otherwise": (
        {"x": [1, 2]},
        {"x": "string"},
        "data.parquet: column x is Int64, declared as string; correct",
    ),
    "declared otherwise, dates": (
        {"x": [datetime.date(2024, 1, 1)] * 2},
        {"x": "number"},
        "column x is Date, declared",
    ),
    "numbers declared integer": ({"x": [1.0, 2.0]}, {"x": "integer"}, "column x is Float64, declared as integer"),
    "own ids as numbers": (
        {"prompt_id": [1, 2]},
        {},
        "column prompt_id is Int64, declared as string; write it as a str",
    ),
    "large": (
        {"x": pl.Series([0, 2**64 - 1], dtype=pl.UInt64)},
        {"x": "integer"},
        "data.parquet: column x: conversion",
    ),
}


@pytest.mark.parametrize("case", TABLES)
def test_bad_tables(project, case):
    columns, declared, message = TABLES[case]
    rows = pl.DataFrame({"prompt": ["a", "b"], **columns})
    options = {"file": {"columns": declared or None}}
    assert_refused(project, (message,), lambda: project.of_rows(rows, "data.parquet", **options))


def test_two_files_of_different_types(project):
    write(Path("test.jsonl"), [{"prompt": "x", "answer": 1}])
    message = "column answer is String in data.jsonl and Int64 in test.jsonl; bring both to one type, or declare it"
    files = {"file": {"heldout": "test.jsonl", "heldout_prompts": None}}
    assert_refused(project, (message,), lambda: project.of_rows(GOOD, **files))
    write(Path("test.jsonl"), TALK)
    message = "prompts of data.jsonl are texts and of test.jsonl are conversations; bring both to one shape"
    assert_refused(project, (message,), lambda: project.of_rows(GOOD, **files))


def test_shared_prompts_name_the_rows_of_both(project):
    write(Path("test.jsonl"), [{"prompt": "new"}, {"prompt": "What is 2?"}])
    shared = "heldout-00002 (test.jsonl: row 2) is train-00003 (data.jsonl: row 3); remove them from one of the two"
    parts = ("1 held-out prompts are training prompts, too", shared)
    options = {"file": {"heldout": "test.jsonl", "heldout_prompts": None}}
    assert_refused(project, parts, lambda: project.of_rows(GOOD, **options))
