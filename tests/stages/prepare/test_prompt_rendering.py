"""Rendered prompts, their lengths and their golden answers."""

from pathlib import Path

import polars as pl
import pytest
from tokenizers import processors

from stages.common import paths
from stages.common.chat import render, tail_of, tokenize
from stages.common.errors import StageError
from stages.common.params import ParamsError, Shot
from tests.stages.prepare.project import Project
from tests.tiny import CHAT_TEMPLATE, tiny_tokenizer

ROWS = [{"prompt": f"What is {n}?", "answer": str(n)} for n in range(6)]
USER, SYSTEM = {"role": "user", "content": "Hi"}, {"role": "system", "content": "Mine."}
ANSWER = {"role": "assistant", "content": "Ho"}
SHOTS = [Shot(user="1+1?", assistant="2"), Shot(user="2+2?", assistant="4")]
SHOWN = "<|user|>1+1?<|end|><|assistant|>2<|end|><|user|>2+2?<|end|><|assistant|>4<|end|>"
OPEN = "<|end|><|assistant|>"


@pytest.fixture
def project(tmp_path, monkeypatch):
    return Project(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("prompt", "system", "shots", "chat", "text"),
    [
        ("Hi", None, [], "auto", f"<|user|>Hi{OPEN}"),
        ("Hi", "Be.", SHOTS, "template", f"<|system|>Be.<|end|>{SHOWN}<|user|>Hi{OPEN}"),
        ([USER], "Be.", [], "auto", f"<|system|>Be.<|end|><|user|>Hi{OPEN}"),
        ([SYSTEM, USER], "Be.", SHOTS, "auto", f"<|system|>Mine.<|end|>{SHOWN}<|user|>Hi{OPEN}"),
        ([USER, ANSWER, USER], None, [], "auto", f"<|user|>Hi<|end|><|assistant|>Ho<|end|><|user|>Hi{OPEN}"),
        (" Hi\n", None, [], "raw", " Hi\n"),
    ],
)
def test_with_a_template(prompt, system, shots, chat, text):
    assert render(tiny_tokenizer(), prompt, system, shots, chat) == text


@pytest.mark.parametrize(
    ("system", "shots", "chat", "text"),
    [
        (None, [], "auto", "Hi\n"),
        ("Be.", SHOTS, "auto", "Be.\n\n1+1?\n2\n\n2+2?\n4\n\nHi\n"),
        (None, SHOTS[:1], "auto", "1+1?\n2\n\nHi\n"),
        (None, [], "raw", "Hi"),
    ],
)
def test_without_a_template(system, shots, chat, text):
    assert render(tiny_tokenizer(chat=False), "Hi", system, shots, chat) == text


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("x<|assistant|>", ""),
        ("x<|assistant|><think>\n", "<think>\n"),
        ("x<think>\n<answer>", "<think>\n<answer>"),
        ("x<think>\n\n</think>\n\n", ""),
        ("a < b > c", ""),
        ("x<think> so", ""),
        ("x<stop>", ""),
        ("x<stop><answer>", "<answer>"),
        ("", ""),
    ],
)
def test_tail(text, tail):
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<stop>"]})
    assert tail_of(tokenizer, text) == tail


def with_bos(template):
    """A tokenizer that puts a token before and one after each text."""
    tokenizer = tiny_tokenizer(chat=False)
    tokenizer.add_special_tokens({"bos_token": "<|stop|>"})
    ids = tokenizer.convert_tokens_to_ids
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|stop|> $A <|end|>", special_tokens=[("<|stop|>", ids("<|stop|>")), ("<|end|>", ids("<|end|>"))]
    )
    tokenizer.chat_template = template
    return tokenizer


@pytest.mark.parametrize(
    ("template", "chat", "text", "said"),
    [
        ("{{ bos_token }}" + CHAT_TEMPLATE, "auto", "<|stop|><|user|>Hi<|end|>", "<|stop|><|user|>Hi<|end|>"),
        (CHAT_TEMPLATE, "auto", "<|user|>Hi<|end|>", "<|user|>Hi<|end|>"),
        (None, "auto", "Hi\n", "<|stop|>Hi\n"),
        (None, "auto", "Hi<|end|>", "<|stop|>Hi<|end|>"),
        (CHAT_TEMPLATE, "raw", "Hi", "<|stop|>Hi"),
        (CHAT_TEMPLATE, "raw", "<|stop|>Hi", "<|stop|>Hi"),
    ],
)
def test_the_first_token_is_there_once_and_none_is_put_last(template, chat, text, said):
    tokenizer = with_bos(template)
    assert tokenizer.decode(tokenizer("a")["input_ids"]) == "<|stop|>a<|end|>"
    assert tokenizer.decode(tokenize(tokenizer, text, chat)) == said


def test_table_of_conversations(project):
    rows = [{"prompt": [SYSTEM, USER, ANSWER, USER | {"content": f"q{n}"}]} for n in range(3)]
    table = project.of_rows(rows, system="Never.", few_shot=[SHOTS[0].model_dump()])
    row = table.filter(prompt="q1").row(0, named=True)
    assert row["messages"] == rows[1]["prompt"]
    shown = "<|system|>Mine.<|end|><|user|>1+1?<|end|><|assistant|>2<|end|><|user|>Hi<|end|><|assistant|>Ho<|end|>"
    assert row["prompt_text"] == f"{shown}<|user|>q1{OPEN}"
    assert project.decoded(table) == table["prompt_text"].to_list()
    assert project.report["conversations"] is True


def test_raw_texts_are_kept_to_the_letter(project):
    texts = [" a\r\n", "b <|end|>", "\tc<think>\n"]
    table = project.of_rows([{"prompt": text} for text in texts], chat="raw")
    assert sorted(table["prompt_text"]) == sorted(project.decoded(table)) == sorted(texts)
    assert table["messages"].null_count() == 3
    assert set(table["prompt_tail"]) == {"", "<think>\n"}


NOTED = {
    "system": (
        "{{ messages[-1]['content'] }}{% if add_generation_prompt %}>{% endif %}",
        {"system": "Be."},
        ["prepare.prompts.system: the model never reads it"],
    ),
    "shots": (
        "{{ messages[-1]['content'] }}{% if add_generation_prompt %}>{% endif %}",
        {"few_shot": [s.model_dump() for s in SHOTS]},
        ["few_shot 1 (user, assistant)", "few_shot 2 (user, assistant)"],
    ),
    "prompt": (
        "{{ messages[-1]['content'] | upper }}{% if add_generation_prompt %}>{% endif %}",
        {},
        ["does not show 4 of 4 prompts word for word; first: data.jsonl: row 1"],
    ),
    "generation prompt": ("{{ messages[0]['content'] }}", {}, ["has no generation prompt"]),
    "nothing": (CHAT_TEMPLATE, {"system": "Be.", "few_shot": [SHOTS[0].model_dump()]}, []),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_a_template_leaves_out_is_told(project, case):
    template, options, notes = NOTED[case]
    project.template(template)
    rows = [{"prompt": f"same {n}"} for n in range(4)]
    project.of_rows(rows, **options)
    found = project.report["notes"]
    assert len(found) == len(notes)
    for note, part in zip(found, notes, strict=True):
        assert part in note
        assert note in project.journal.said


def test_long_prompts_are_dropped_whole_and_reported(project):
    rows = [*ROWS, {"prompt": "seven " * 300, "answer": "7"}, {"prompt": "eight " * 50, "answer": "8"}]
    every = project.of_rows(rows[:6] + rows[7:], file={"heldout_prompts": 2})
    longest = every["prompt_ids"].list.len().max()
    table = project.of_rows(rows, file={"heldout_prompts": 2}, max_tokens=longest - 1, too_long="drop")
    dropped = project.report["dropped"]
    assert [(row["prompt_id"], row["why"]) for row in dropped] == [
        (f"train-0000{n}", f"more than {longest - 1} tokens") for n in (7, 8)
    ]
    assert dropped[1]["tokens"] == longest
    assert table.height == 6
    assert project.decoded(table) == table["prompt_text"].to_list()
    assert "dropped 2: train-00007, train-00008; data/prompts.json says why" in project.journal.said
    assert project.of_rows(rows[:6] + rows[7:], file={"heldout_prompts": 2}, max_tokens=longest).height == 7


SAYS = """
def says(completions, answer, **columns):
    return [None if a == "none" else float(c == f"#### {a}") for c, a in zip(completions, answer, strict=True)]
"""


class TestGolden:
    """Answers that do not get the full reward, or none at all."""

    @pytest.fixture
    def rows(self, project):
        Path("own.py").write_text(SAYS)
        project.raw["score"]["rewards"] = {"says": {"function": "own.py:says"}}
        answers = ["0", "1", "none", None, "4", "5"]
        return [row | {"answer": answer} for row, answer in zip(ROWS, answers, strict=True)]

    def of(self, project, rows, completion="#### {answer}", failing="report"):
        verify = {"reward": "says", "completion": completion, "failing": failing}
        return project.of_rows(rows, verify=verify, file={"train_prompts": None})

    def test_reported(self, project, rows):
        assert self.of(project, rows).height == 6
        found = {row["prompt_id"][-1]: row["message"] for row in project.report["golden"]["failing"]}
        assert set(found) == {"3", "4"}
        assert found["3"].startswith("missing: the function returned None; golden answer: '#### none'")
        assert found["4"] == "answer is null"
        assert any(said.startswith("2 of 6 golden answers do not get the full reward") for said in project.journal.said)

    def test_dropped(self, project, rows):
        table = self.of(project, rows, failing="drop")
        assert sorted(table["answer"]) == ["0", "1", "4", "5"]
        assert {row["why"] for row in project.report["dropped"]} == {"golden answer fails"}

    def test_refused(self, project, rows):
        with pytest.raises(
            StageError, match=r"2 of 6 golden answers do not get the full reward .*: answer is null.*failing to drop"
        ):
            self.of(project, rows, failing="refuse")
        assert not paths.PROMPTS.exists()

    def test_full_is_what_the_verifier_gives_and_not_the_sum_of_rewards(self, project, rows):
        project.raw["advantage"]["correct_reward"] = 1.5
        self.of(project, rows)
        assert {row["prompt_id"][-1] for row in project.report["golden"]["failing"]} == {"3", "4"}
        verify = {"reward": "says", "completion": "#### {answer}", "full": 2.0}
        project.of_rows(rows, verify=verify, file={"train_prompts": None})
        assert len(project.report["golden"]["failing"]) == 6

    def test_less_than_the_full_reward_fails(self, project, rows):
        self.of(project, rows, completion="{answer}")
        told = [row["message"] for row in project.report["golden"]["failing"]]
        assert len(told) == 6
        assert "reward 0 of 1; golden answer: '0'" in told

    @pytest.mark.parametrize(
        ("completion", "message"),
        [
            ("{gold}", r"verify.completion: prompts have no column 'gold'; they have .*answer"),
            ("{}", "prompts have no column ''"),
            ("\\boxed{", "verify.completion = .*; write {{ for a brace"),
            ("{answer:d}", "verify.completion: Unknown format code"),
        ],
    )
    def test_wrong_completions(self, project, rows, completion, message):
        with pytest.raises(ParamsError, match=message):
            self.of(project, rows, completion=completion)

    def test_braces(self, project, rows):
        self.of(project, rows, completion="\\boxed{{{answer}}}")
        assert any("\\\\boxed{1}" in row["message"] for row in project.report["golden"]["failing"])


def test_report(project):
    table = project.of_rows(ROWS, file={"heldout_prompts": 2})
    found = project.report
    assert found["prompts"] == {"train": 4, "heldout": 2}
    assert found["columns"] == {"answer": "String"}
    assert found["source"]["train"] == "data.jsonl"
    assert found["limit"] == 504
    lengths = table.filter(split="train")["prompt_ids"].list.len()
    assert (found["lengths"]["train"]["min"], found["lengths"]["train"]["max"]) == (lengths.min(), lengths.max())
    assert found["examples"]["heldout"]["prompt_text"] in table.filter(split="heldout")["prompt_text"].to_list()
    assert pl.read_parquet(paths.PROMPTS)["prompt_id"].is_sorted()
