"""Files of demonstrations: the formats that are read, and what is said of the rows that are not in order."""

import hashlib
import json
import os
from pathlib import Path

import polars as pl
import pytest

from stages.common.errors import StageError
from stages.common.policy import load_tokenizer
from stages.sft.demonstrations import from_file
from stages.sft.records import read_records
from stages.sft.split import split_rows

USER, SYSTEM = {"role": "user", "content": "Hi"}, {"role": "system", "content": "Be brief."}
ANSWER = {"role": "assistant", "content": "Ho"}
TEXT = {"prompt": "Hi", "completion": "Ho"}
TURNS = {"prompt": [USER], "completion": [ANSWER]}
MESSAGES = {"messages": [USER, ANSWER]}
SFT = {"file": "d.jsonl", "learning_rate": 0.01}


def write(rows, path="d.jsonl"):
    Path(path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return Path(path)


@pytest.fixture
def read(base, params, journal):
    def read(rows, **others):
        path = rows if isinstance(rows, Path) else write(rows)
        return from_file(path, None, params(SFT, **others), load_tokenizer(base), journal)

    return read


@pytest.mark.parametrize("row", [TEXT, TURNS, MESSAGES], ids=["text", "turns", "messages"])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_each_shape_gives_the_same_tokens(base, read, row, form):
    path = Path(f"d.{form}")
    write([row, row], path) if form == "jsonl" else pl.DataFrame([row, row]).write_parquet(path)
    rows, tokenizer = read(path), load_tokenizer(base)
    assert tokenizer.decode(rows["prompt_ids"][0]) == "<|user|>Hi<|end|><|assistant|>"
    assert tokenizer.decode(rows["completion_ids"][0]) == "Ho<|end|>"
    assert rows["prompt_id"].to_list() == ["row-000001", "row-000002"]
    assert rows["completion"].to_list() == ["Ho", "Ho"]
    assert rows["task_reward"].null_count() == 2


def test_the_last_turn_is_the_completion_and_the_system_turn_of_params_is_for_prompts_without(base, read):
    talk = [USER, ANSWER, USER, {"role": "assistant", "content": "End"}]
    rows = read([{"messages": talk}, {"messages": [SYSTEM, *talk]}], prepare__prompts__system="Think.")
    texts = [load_tokenizer(base).decode(ids) for ids in rows["prompt_ids"]]
    before = "<|user|>Hi<|end|><|assistant|>Ho<|end|><|user|>Hi<|end|><|assistant|>"
    assert texts == [f"<|system|>Think.<|end|>{before}", f"<|system|>Be brief.<|end|>{before}"]
    assert rows["completion"].to_list() == ["End", "End"]
    assert json.loads(rows["prompt"][1]) == [SYSTEM, *talk[:3]]


def test_few_shot_turns_and_raw_texts_as_of_training_prompts(base, read):
    shots, decode = [{"user": "One?", "assistant": "1"}], load_tokenizer(base).decode
    shown = "<|user|>One?<|end|><|assistant|>1<|end|><|user|>Hi<|end|><|assistant|>"
    assert decode(read([TEXT], prepare__prompts__few_shot=shots)["prompt_ids"][0]) == shown
    assert decode(read([TURNS], prepare__prompts__few_shot=shots)["prompt_ids"][0]) == shown
    assert decode(read([TEXT], prepare__prompts__chat="raw")["prompt_ids"][0]) == "Hi"
    with pytest.raises(StageError, match=r"row 1: a conversation, but prepare.prompts.chat is raw"):
        read([TURNS], prepare__prompts__chat="raw")


@pytest.mark.parametrize(
    ("completion", "stop_tokens", "end"),
    [
        ("Ho", ["<|stop|>", "<|end|>"], "<|stop|>"),
        ("Ho", None, "<|end|>"),
        ("Ho<|end|>", None, "<|end|>"),
        ("Ho<|end|>", ["<|stop|>", "<|end|>"], "<|end|>"),
    ],
)
def test_a_completion_ends_exactly_once(base, read, completion, stop_tokens, end):
    rows = read([TEXT | {"completion": completion}], rollout__stop_tokens=stop_tokens)
    assert load_tokenizer(base).decode(rows["completion_ids"][0]) == f"Ho{end}"
    assert rows["completion"][0] == "Ho"


def test_lines_are_counted_as_they_are_in_the_file_and_other_columns_are_named(read, journal):
    separator = TEXT | {"prompt": "a\u2028b", "source": "x"}  # no end of a line in JSON
    Path("d.jsonl").write_text("\n" + json.dumps(separator, ensure_ascii=False) + "\n\n" + json.dumps(TEXT))
    assert read(Path("d.jsonl"))["prompt_id"].to_list() == ["row-000002", "row-000004"]
    assert "columns that are not read: source" in journal.said


BAD_ROWS = {
    "no shape": ({"instruction": "Hi"}, "expected `prompt` and `completion`.*found 'instruction'"),
    "nothing": ({}, "expected `prompt` and `completion`.*found nothing"),
    "half a pair": ({"prompt": "Hi"}, "expected `prompt` and `completion`.*found 'prompt'"),
    "two shapes at once": (TEXT | MESSAGES, "expected `prompt` and `completion`.*'messages'"),
    "null prompt": (TEXT | {"prompt": None}, "prompt is null; fill it in or remove the row"),
    "null completion": (TEXT | {"completion": None}, "completion is null"),
    "null messages": ({"messages": None}, "messages is null"),
    "number": (TEXT | {"completion": 7}, "completion is a number; both have to be strings"),
    "text and turns": (TEXT | {"completion": [ANSWER]}, "prompt is a string, completion is a list; both have"),
    "messages as text": ({"messages": "Hi"}, r"messages is a string; it has to be a list"),
    "empty prompt": (TEXT | {"prompt": " "}, "the prompt is empty"),
    "empty completion": (TEXT | {"completion": ""}, "the completion is empty"),
    "white space": (TEXT | {"completion": " \n"}, "the completion is empty"),
    "only the end": (TEXT | {"completion": "<|end|>"}, "the completion is empty but for its end"),
    "an end inside": (TEXT | {"completion": "a<|stop|>b"}, r"the completion has <\|stop\|> before its end"),
    "too long": (TEXT | {"completion": "7 " * 300}, r"\d+ tokens of prompt and \d+ of completion.*512 positions"),
    "no turns": ({"messages": []}, "the completion has to be one turn of the assistant.*found nothing"),
    "no prompt": ({"messages": [ANSWER]}, "the prompt is empty"),
    "the user's last": ({"messages": [USER, ANSWER, USER]}, "one turn of the assistant, at the end; found user"),
    "two completions": (TURNS | {"completion": [ANSWER, ANSWER]}, "one turn of the assistant.*assistant, assistant"),
    "assistant before": ({"messages": [USER, ANSWER, ANSWER]}, "turn before the completion has to be the user's"),
    "late system": ({"messages": [USER, ANSWER, SYSTEM, USER, ANSWER]}, "a system turn can only be the first"),
    "unknown role": (
        {"messages": [{"role": "tool", "content": "x"}, ANSWER]},
        "messages, turn 1: role is 'tool'; roles",
    ),
    "no role": ({"messages": [{"content": "x"}, ANSWER]}, r"messages, turn 1: expected \{role, content\}, found"),
    "empty content": ({"messages": [USER | {"content": " "}, ANSWER]}, "messages, turn 1: content is empty"),
    "null content": ({"messages": [USER, ANSWER | {"content": None}]}, "messages, turn 2: content is null"),
    "parts": ({"messages": [USER | {"content": [{"text": "x"}]}, ANSWER]}, "messages, turn 1: content is a list"),
    "no turn": ({"messages": ["Hi", ANSWER]}, r"messages, turn 1: expected \{role, content\}, found Hi"),
    "more in a turn": (
        {"messages": [USER, ANSWER | {"tool_calls": [1]}]},
        "messages, turn 2: tool_calls would be lost",
    ),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_stops_the_stage_with_its_place(read, row, message):
    good = MESSAGES if "messages" in row and "prompt" not in row else TURNS if _is_turns(row) else TEXT
    with pytest.raises(StageError, match=f"d.jsonl: row 2: .*{message}"):
        read([good, row])


def _is_turns(row):
    return all(isinstance(row.get(name), list) for name in ("prompt", "completion"))


@pytest.mark.parametrize("other", [TURNS, MESSAGES])
def test_shapes_do_not_mix(read, other):
    with pytest.raises(StageError, match=r"row 3: holds (turns|messages), but row 1 holds text; bring all rows"):
        read([TEXT, TEXT, other])


BAD_FILES = {
    "absent": ("d.jsonl", None, "no such file"),
    "unknown format": ("d.xlsx", b"prompt,completion\n", "name it .jsonl"),
    "empty": ("d.jsonl", b"\n\n", "it has no rows"),
    "not JSON": ("d.jsonl", b'{"prompt": \n', "d.jsonl: row 1: not valid JSON"),
    "an array of numbers": ("d.jsonl", b"[1]\n", "d.jsonl: row 1: expected an object"),
    "not UTF-8": ("d.jsonl", b"\xff\xfe\x00", "not UTF-8"),
    "not Parquet": ("d.parquet", b"text", "cannot be read as Parquet"),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_an_error(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(StageError, match=message):
        read_records(tmp_path / name)


def test_a_model_without_a_template_takes_texts_only(base, read):
    (base / "chat_template.jinja").unlink()
    assert load_tokenizer(base).decode(read([TEXT])["prompt_ids"][0]) == "Hi\n"
    with pytest.raises(StageError, match="row 1: a conversation, but the model has no chat template"):
        read([MESSAGES])


def test_another_file_than_the_one_that_is_pinned_is_refused(base, params, journal):
    path, tokenizer = write([TEXT]), load_tokenizer(base)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    for pinned in (found, None):
        from_file(path, pinned, params(SFT), tokenizer, journal)
    assert journal.said == [f"d.jsonl: sha256 {found}"] * 2
    write([TEXT, TEXT])
    with pytest.raises(StageError, match=rf"d.jsonl: its hash is .*, not sft.sha256 = {found}"):
        from_file(path, found, params(SFT), tokenizer, journal)


def rows_of(prompts):
    return pl.DataFrame({"prompt_ids": [[prompt] for prompt in prompts], "split": "train"})


@pytest.mark.parametrize(
    ("prompts", "share", "heldout"), [(2, 0.01, 1), (2, 0.99, 1), (10, 0.2, 2), (10, 0.99, 9), (40, 0.25, 10)]
)
def test_a_share_is_held_out_and_at_least_one_of_each(prompts, share, heldout):
    rows = rows_of(range(prompts))
    found = split_rows(rows, share, 0)
    assert found.filter(split="heldout").height == heldout
    backwards = split_rows(rows.reverse(), share, 0).reverse()
    assert found.equals(backwards)


def test_rows_of_one_prompt_stay_together_and_the_seed_decides():
    rows = rows_of([*range(20), *range(20)])
    splits = [split_rows(rows, 0.3, seed)["split"].to_list() for seed in (0, 1)]
    assert splits[0] != splits[1]
    assert all(split[:20] == split[20:] for split in splits)
    with pytest.raises(StageError, match="demonstrations of 1 prompt"):
        split_rows(rows_of([3, 3]), 0.5, 0)


def seed_tasks():
    folders = [Path(os.environ["RLOO_DATA"])] if "RLOO_DATA" in os.environ else []
    found = [folder / "alpaca_seed_tasks.jsonl" for folder in [*folders, Path(__file__).parents[4] / "shared" / "data"]]
    return next((path for path in found if path.exists()), None)


@pytest.mark.skipif(seed_tasks() is None, reason="the real data is not there")
def test_real_instructions(read):
    rows = [json.loads(line) for line in seed_tasks().read_text().splitlines()]
    found = read(
        [
            {"prompt": "\n".join([row["instruction"], instance["input"]]), "completion": instance["output"]}
            for row in rows
            for instance in row["instances"]
            if len(row["instruction"]) + len(instance["input"]) + len(instance["output"]) < 200
        ]
    )
    assert found.height > 30
