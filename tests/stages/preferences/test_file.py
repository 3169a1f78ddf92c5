"""Files of pairs: what they become, byte for byte, and what is said of bad ones."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from stages.common import paths
from stages.common.errors import StageError
from stages.common.params import ParamsError
from stages.common.policy import load_tokenizer
from tests.stages.preferences.project import Project, write_lines

SYSTEM = "<|system|>Follow every instruction exactly.<|end|>"
ROWS = [{"prompt": f"Why {n}?", "chosen": f"So {n}.", "rejected": "No."} for n in range(10)]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


TURNS = [user("Hi"), assistant("Hello"), user("Why?")]
RENDERED = "<|user|>Hi<|end|><|assistant|>Hello<|end|><|user|>Why?<|end|><|assistant|>"
VIEW = "user: Hi\n\nassistant: Hello\n\nuser: Why?"
HH = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: Why?\n\nAssistant:"


@pytest.fixture
def project(tmp_path, monkeypatch):
    return Project(tmp_path, monkeypatch, prompts=2)


@pytest.mark.parametrize(
    ("row", "text", "prompt"),
    [
        (
            {"prompt": "Why?", "chosen": "So.", "rejected": "No"},
            f"{SYSTEM}<|user|>Why?<|end|><|assistant|>",
            "Why?",
        ),
        (
            {"prompt": TURNS, "chosen": [assistant("So.")], "rejected": [assistant("No")]},
            SYSTEM + RENDERED,
            VIEW,
        ),
        (
            {
                "prompt": [{"role": "system", "content": "Be kind."}, *TURNS],
                "chosen": [assistant("So.")],
                "rejected": [assistant("No")],
            },
            f"<|system|>Be kind.<|end|>{RENDERED}",
            VIEW,
        ),
        ({"chosen": [*TURNS, assistant("So.")], "rejected": [*TURNS, assistant("No")]}, SYSTEM + RENDERED, VIEW),
        ({"chosen": f"{HH} So.", "rejected": f"{HH} No"}, SYSTEM + RENDERED, VIEW),
        ({"prompt": HH, "chosen": " So.", "rejected": " No"}, SYSTEM + RENDERED, VIEW),
        ({"chosen": "Why? So.", "rejected": "Why? No"}, f"{SYSTEM}<|user|>Why?<|end|><|assistant|>", "Why?"),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "json", "parquet"])
def test_rows_are_rendered_and_tokenised_by_hand(project, row, text, prompt, form):
    other = json.loads(json.dumps(row).replace("Why", "Who"))
    path = Path(f"pairs.{form}")
    if form == "jsonl":
        write_lines(path, [row, other])
    elif form == "json":
        path.write_text(json.dumps([row, other]))
    else:
        pl.DataFrame([row, other]).write_parquet(path)
    table = project.pairs(file=str(path))
    tokenizer = load_tokenizer()
    encode = lambda said: tokenizer(said, add_special_tokens=False)["input_ids"]
    found = table.row(0, named=True)
    assert found["pair_id"] == "row-0000001"
    assert (found["prompt"], found["chosen"], found["rejected"]) == (prompt, "So.", "No")
    assert tokenizer.decode(found["prompt_ids"]) == text
    assert found["prompt_ids"] == encode(text)
    assert found["chosen_ids"] == [*encode("So."), tokenizer.eos_token_id]
    assert found["rejected_ids"] == [*encode("No"), tokenizer.eos_token_id]
    assert [found[name] for name in ("chosen_gold", "rejected_gold", "margin", "flipped")] == [None, None, None, False]


def test_training_prompts_and_pairs_have_the_same_ids(project):
    prompt = pl.read_parquet(paths.PROMPTS).row(0, named=True)
    rows = [ROWS[0] | {"prompt": prompt["prompt"]}, ROWS[1]]
    table = project.pairs(file=write_lines(Path("pairs.jsonl"), rows))
    assert table["prompt_ids"][0].to_list() == prompt["prompt_ids"]


@pytest.mark.parametrize(
    ("stop_tokens", "chosen", "end"),
    [
        (["<|stop|>", "<|end|>"], "So.", "So.<|stop|>"),
        (["<|stop|>", "<|end|>"], "So.<|end|>", "So.<|end|>"),
        (["<|stop|>", "<|end|>"], "So.<|stop|>", "So.<|stop|>"),
        (None, "So.", "So.<|end|>"),
        (None, "So.<|stop|>", "So.<|stop|><|end|>"),
    ],
)
def test_the_end_is_there_once(project, stop_tokens, chosen, end):
    project.raw["rollout"]["stop_tokens"] = stop_tokens
    rows = [ROWS[0] | {"chosen": chosen}, ROWS[1]]
    table = project.pairs(file=write_lines(Path("pairs.jsonl"), rows))
    assert load_tokenizer().decode(table["chosen_ids"][0].to_list()) == end


def test_few_shot_turns_and_raw_texts_as_of_training_prompts(project):
    prompts = project.raw["prepare"]["prompts"]
    prompts["few_shot"] = [{"user": "One?", "assistant": "1"}]
    decode = load_tokenizer().decode
    table = project.pairs(file=write_lines(Path("pairs.jsonl"), ROWS))
    shown = "<|user|>One?<|end|><|assistant|>1<|end|><|user|>Why 0?<|end|><|assistant|>"
    assert decode(table["prompt_ids"][0].to_list()) == SYSTEM + shown
    prompts |= {"few_shot": [], "system": None, "chat": "raw"}
    table = project.pairs(file=write_lines(Path("pairs.jsonl"), ROWS))
    assert decode(table["prompt_ids"][0].to_list()) == "Why 0?"
    talk = [{"chosen": [*TURNS, assistant("So.")], "rejected": [*TURNS, assistant("No")]}]
    with pytest.raises(StageError, match=r"row 1: its prompt has several turns, but prepare.prompts.chat is raw"):
        project.pairs(file=write_lines(Path("pairs.jsonl"), talk))


def test_without_a_chat_template(project):
    tokenizer = load_tokenizer()
    tokenizer.chat_template = None
    for path in paths.REFERENCE.glob("chat_template*"):
        path.unlink()
    tokenizer.save_pretrained(paths.REFERENCE)
    table = project.pairs(file=write_lines(Path("pairs.jsonl"), ROWS))
    assert tokenizer.decode(table["prompt_ids"][0].to_list()) == "Follow every instruction exactly.\n\nWhy 0?\n"
    bad = [{"chosen": f"{HH} So.", "rejected": f"{HH} No"}]
    with pytest.raises(StageError, match=r"row 1: its prompt has several turns, but .* no chat template"):
        project.pairs(file=write_lines(Path("pairs.jsonl"), bad))


def test_a_template_that_refuses_is_told_with_the_row(project):
    tokenizer = load_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('no system here') }}"
    tokenizer.save_pretrained(paths.REFERENCE)
    with pytest.raises(StageError, match=r"pairs.jsonl: row 1: the model's chat template refuses its turns: no system"):
        project.pairs(file=write_lines(Path("pairs.jsonl"), ROWS))


def test_margins_blank_lines_and_marks_inside_strings(project):
    lines = [json.dumps(row | {"margin": n / 2, "id": n}, ensure_ascii=False) for n, row in enumerate(ROWS)]
    lines[3] = lines[3].replace("So 3.", "So\u2028three.")
    Path("pairs.jsonl").write_text("\ufeff" + "\r\n\n".join(lines), encoding="utf-8")
    table = project.pairs(file="pairs.jsonl")
    assert table["pair_id"].to_list() == [f"row-{2 * n + 1:07d}" for n in range(10)]
    assert table["margin"].to_list() == [n / 2 for n in range(10)]
    assert table["chosen"][3] == "So\u2028three."
    assert "pairs.jsonl: columns that are not read: id" in project.said


def test_repetitions_stay_and_are_told(project):
    rows = [*ROWS, ROWS[0], ROWS[0], ROWS[1] | {"chosen": ROWS[1]["rejected"], "rejected": ROWS[1]["chosen"]}]
    table = project.pairs(file=write_lines(Path("pairs.jsonl"), rows))
    assert table.height == 13
    assert any("2 rows repeat an earlier pair" in said for said in project.said)
    assert any("1 pairs are there in both orders" in said for said in project.said)


def test_pairs_of_one_prompt_stay_on_one_side(project):
    rows = [row | {"chosen": f"{row['chosen']} {n}"} for row in ROWS for n in range(3)]
    table = project.pairs(file=write_lines(Path("pairs.jsonl"), rows), heldout=0.3)
    assert Counter(table["split"].to_list()) == {"train": 21, "heldout": 9}
    assert set(table.group_by("prompt").agg(pl.col("split").n_unique())["split"]) == {1}


def test_the_split_depends_on_the_seed_and_not_on_the_order(project):
    first = project.pairs(file=write_lines(Path("pairs.jsonl"), ROWS), heldout=0.5)
    other = project.pairs(file=write_lines(Path("pairs.jsonl"), ROWS[::-1]), heldout=0.5)
    side = lambda table: dict(table.select("prompt", "split").iter_rows())
    assert side(first) == side(other)
    project.raw["seed"] = 1
    assert side(project.pairs(file="pairs.jsonl", heldout=0.5)) != side(first)


def test_same_bytes_twice(project):
    write_lines(Path("pairs.jsonl"), ROWS)
    contents = set()
    for _ in range(2):
        project.pairs(file="pairs.jsonl")
        contents.add(paths.preferences("gold").read_bytes())
    assert len(contents) == 1


def test_hash(project):
    write_lines(Path("pairs.jsonl"), ROWS)
    found = hashlib.sha256(Path("pairs.jsonl").read_bytes()).hexdigest()
    project.pairs(file="pairs.jsonl", sha256=found)
    assert f"pairs.jsonl: sha256 {found}" in project.said
    with pytest.raises(StageError, match=rf"pairs.jsonl: its hash is {found}, not reward_models.gold.preferences.sha2"):
        project.pairs(file="pairs.jsonl", sha256="0" * 64)


def test_no_preferences_for_a_reward_model_that_exists(project):
    project.raw["reward_models"] = {"given": {"preferences": None, "source": "somewhere"}}
    assert project.run("given").height == 0


GOOD = json.dumps(ROWS[0])
BAD_FILES = {
    "empty.jsonl": ("", "empty.jsonl: it has no rows"),
    "array.json": ("[]", "array.json: it has no rows"),
    "broken.json": ("[{]", "broken.json: not a JSON array"),
    "broken.jsonl": (f"{GOOD}\n{{", "broken.jsonl: row 2: not valid JSON"),
    "number.jsonl": (f"{GOOD}\n3", "number.jsonl: row 2: expected an object with columns, found int"),
    "list.json": ("[[1]]", "list.json: row 1: expected an object with columns, found list"),
    "twice.jsonl": ('{"chosen": "a", "chosen": "b"}', "twice.jsonl: row 1: not valid JSON: a key stands twice"),
    "latin.jsonl": (GOOD.replace("Why", "W\xe9").encode("latin-1"), "latin.jsonl: line 1: not UTF-8"),
    "pairs.csv": ("a,b", "pairs.csv: it has no rows"),
    "pairs.xlsx": ("a,b", "pairs.xlsx: of what format is it? name it .jsonl"),
    "not.parquet": ("a,b", "not.parquet: cannot be read as Parquet"),
    "columns.jsonl": (
        f'{GOOD}\n{{"prompt": "a", "chosen": "b"}}',
        "columns.jsonl: row 2: its columns are not those of row 1 (rejected); use one shape",
    ),
    "missing.jsonl": ('{"prompt": "a", "chosen": "b"}', "missing.jsonl: row 1: no column rejected"),
    "shapes.jsonl": (
        f"{GOOD}\n{json.dumps(ROWS[0] | {'prompt': HH})}",
        "shapes.jsonl: row 2: it is a transcript with answers, row 1 is a text with answers; use one shape",
    ),
    "null.jsonl": (f"{GOOD}\n{GOOD.replace(chr(34) + 'No.' + chr(34), 'null')}", "null.jsonl: row 2: rejected is null"),
    "equal.jsonl": (f"{GOOD}\n{GOOD.replace('No.', 'So 0.')}", "equal.jsonl: row 2: chosen and rejected are equal"),
    "tokens.jsonl": (
        f"{GOOD}\n{GOOD.replace('No.', 'So 0.<|end|>')}",
        "tokens.jsonl: row 2: chosen and rejected are the same tokens",
    ),
    "long.jsonl": (f"{GOOD}\n{GOOD.replace('No.', 'Z' * 600)}", "tokens, the model 512 positions; shorten or remove"),
    "one.jsonl": (
        f"{GOOD}\n{GOOD}",
        "params.yaml: reward_models.gold.preferences: there are 2 pairs of 1 prompts; to train on some and to hold "
        "out others takes two prompts at least",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_file(project, name):
    content, message = BAD_FILES[name]
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(StageError) as caught:
        project.pairs(file=name)
    assert message in str(caught.value)
    assert not paths.preferences("gold").exists()


def test_no_such_file(project):
    with pytest.raises(StageError, match=r"^absent.jsonl: no such file; paths are relative to the project's folder"):
        project.pairs(file="absent.jsonl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set one of the two"),
        ({"file": "a.jsonl", "sampled": {"prompts": 1, "gold": "a:b"}}, "set one of the two"),
        ({"sampled": {"prompts": 1, "gold": "a:b"}, "sha256": "0"}, "sha256 is that of a `file`"),
        ({"file": "a.jsonl", "heldout": 1.0}, "heldout"),
    ],
)
def test_options(project, options, message):
    with pytest.raises(ParamsError, match=message):
        project.pairs(**options)


def test_preferences_of_a_given_reward_model_are_written_out(project):
    project.raw["reward_models"] = {"given": {"source": "somewhere"}}
    with pytest.raises(ParamsError, match=r"reward_models.given.preferences: missing; add it"):
        project.run("given")


def real_data(name):
    folder = Path(os.environ.get("RLOO_DATA", Path(__file__).parents[4] / "shared" / "data"))
    return folder / name


def majority_pairs():
    """PandaLM's answers that two of three annotators prefer, as pairs; some answers are empty, some `true`."""
    for row in json.loads(real_data("pandalm_testset_v1.json").read_text()):
        winner, count = Counter(row[f"annotator{n}"] for n in (1, 2, 3)).most_common(1)[0]
        pair = (row["response1"], row["response2"]) if winner == 1 else (row["response2"], row["response1"])
        if winner and count > 1:
            prompt = f"{row['instruction']}\n\n{row['input']}".strip()
            yield {"prompt": prompt, "chosen": pair[0], "rejected": pair[1], "idx": row["idx"]}


def is_complete(row):
    sides = (row["chosen"], row["rejected"])
    return all(isinstance(text, str) and text.strip() for text in sides) and sides[0] != sides[1]


@pytest.mark.skipif(not real_data("pandalm_testset_v1.json").exists(), reason="the sample of PandaLM is not here")
def test_pairs_of_human_annotators(project):
    config = json.loads((paths.REFERENCE / "config.json").read_text()) | {"max_position_embeddings": 8192}
    (paths.REFERENCE / "config.json").write_text(json.dumps(config))
    everything = list(majority_pairs())
    first_bad = next(n for n, row in enumerate(everything, start=1) if not is_complete(row))
    with pytest.raises(StageError, match=rf"pandalm.jsonl: row {first_bad}: "):
        project.pairs(file=write_lines(Path("pandalm.jsonl"), everything))
    rows = [row for row in everything if is_complete(row)]
    table = project.pairs(file=write_lines(Path("pandalm.jsonl"), rows))
    assert table.height == len(rows) > 800
    assert table["chosen"].to_list() == [row["chosen"] for row in rows]
    assert set(table.group_by("prompt").agg(pl.col("split").n_unique())["split"]) == {1}
    prompts = table.unique("prompt")
    assert prompts.filter(split="heldout").height == round(0.1 * prompts.height)
