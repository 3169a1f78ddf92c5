"""Prompts from files, datasets and reasoning-gym: what becomes of columns, types, ids and splits."""

import json
import os
import random
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from stages.common import paths
from stages.common.errors import StageError
from stages.common.params import ParamsError
from stages.common.tables import PROMPTS
from stages.score.gym import gym_reward
from tests.stages.prepare.project import Project, write

GYM_COLUMNS = ("gym_task", "gym_config", "gym_entry")
ROWS = [{"prompt": f"What is {n}?", "answer": str(n)} for n in range(20)]


@pytest.fixture
def project(tmp_path, monkeypatch):
    return Project(tmp_path, monkeypatch)


def own(table):
    return table.select(pl.exclude(list(PROMPTS)))


@pytest.mark.parametrize("name", ["d.jsonl", "d.json", "d.csv", "d.parquet"])
def test_formats_give_the_same_table(project, name):
    wanted = project.of_rows(ROWS, "wanted.jsonl").with_columns(prompt_id=pl.col("prompt_id").str.slice(-5).cast(int))
    rows = {"d.csv": "prompt,answer\r\n" + "".join(f"{r['prompt']},{r['answer']}\r\n" for r in ROWS)}.get(name, ROWS)
    found = project.of_rows(pl.DataFrame(ROWS) if name == "d.parquet" else rows, name)
    number = pl.col("prompt_id").str.slice(-5).cast(int) - (1 if name == "d.csv" else 0)  # the header is a line
    assert found.with_columns(prompt_id=number).equals(wanted)


def test_columns_that_come_late_are_kept_and_those_of_nothing_but_null(project):
    rows = [*ROWS, {"prompt": "late", "note": {"a": 1}, "empty": None}]
    table = own(project.of_rows(rows)).sort("answer", nulls_last=True)
    assert table.schema == {"answer": pl.String, "note": pl.Struct({"a": pl.Int64}), "empty": pl.Null}
    assert table["note"].to_list() == [None] * 20 + [{"a": 1}]
    assert table["answer"].null_count() == 1


def test_types_are_those_of_the_values(project):
    values = {"i": -(2**63), "f": 0.5, "b": True, "l": [[1], []], "s": {"x": [{"y": None}]}, "n": None, "e": []}
    table = own(project.of_rows([{"prompt": str(n), **values} for n in range(3)]))
    assert table.to_dicts() == [values] * 3
    assert table.schema["e"] == pl.List(pl.Null)


def test_objects_with_different_keys_are_told(project):
    rows = [{"prompt": "a", "o": [{"x": 1}, {}]}, {"prompt": "b", "o": [{"y": "z"}]}]
    table = project.of_rows(rows)
    assert sorted(table["o"].to_list(), key=len) == [
        [{"x": None, "y": "z"}],
        [{"x": 1, "y": None}, {"x": None, "y": None}],
    ]
    note = "data.jsonl: the objects of column o[] have different keys: each has all of x, y now"
    assert any(said.startswith(note) for said in project.journal.said)
    assert any(said.startswith(note) for said in project.report["notes"])


def test_declared_types(project):
    rows = [{"prompt": "a", "x": 1, "y": None}, {"prompt": "b", "x": 2.5, "y": None}]
    columns = {"x": "number", "y": "boolean"}
    table = own(project.of_rows(rows, file={"columns": columns}))
    assert table.schema == {"x": pl.Float64, "y": pl.Boolean}
    assert sorted(table["x"]) == [1.0, 2.5]
    frame = pl.DataFrame({"prompt": ["a", "b"], "x": [1, 2], "y": [None, None]})
    assert own(project.of_rows(frame, "d.parquet", file={"columns": columns})).schema == table.schema


def test_cells_are_read_as_declared_and_else_are_texts(project):
    text = 'prompt,i,n,b,s,a\nx,-007,1e3,TRUE,"",1\ny,,,,01,\n'
    declared = {"i": "integer", "n": "number", "b": "boolean", "s": "string", "a": "any"}
    rows = own(project.of_rows(text, "d.csv", file={"columns": declared})).sort("i", nulls_last=True).to_dicts()
    assert rows == [
        {"i": -7, "n": 1000.0, "b": True, "s": "", "a": "1"},
        {"i": None, "n": None, "b": None, "s": "01", "a": ""},
    ]
    assert own(project.of_rows(text, "d.csv")).schema == dict.fromkeys("inbsa", pl.String)


def test_parquet_keeps_its_types(project):
    frame = pl.DataFrame({"prompt": ["a", "b"], "x": [1, 2], "c": ["u", "v"]})
    frame = frame.with_columns(pl.col("x").cast(pl.UInt8), pl.col("c").cast(pl.Categorical))
    table = project.of_rows(frame, "d.parquet")
    assert [str(table.schema[name]) for name in ("x", "c")] == ["UInt8", "Categorical"]


def test_ids_are_row_numbers_or_the_users_own(project):
    write(Path("test.jsonl"), "\n\n" + json.dumps({"prompt": "held"}))
    files = {"heldout": "test.jsonl", "heldout_prompts": None}
    table = project.of_rows(ROWS[:2], file=files)
    assert table["prompt_id"].to_list() == ["heldout-00003", "train-00001", "train-00002"]
    assert table["answer"].to_list() == [None, "0", "1"]
    assert "test.jsonl has no column answer: null there" in project.journal.said
    assert set(
        project.of_rows([r | {"id": f"q{r['answer']}"} for r in ROWS], file={"rename": {"id": "prompt_id"}})[
            "prompt_id"
        ]
    ) == {f"q{n}" for n in range(20)}


def test_what_is_held_out_depends_on_seed_and_prompt_alone(project):
    def heldout(rows, seed=0):
        project.raw["seed"] = seed
        table = project.of_rows(rows, file={"heldout_prompts": 6})
        assert table.filter(split="heldout").height == 6
        return set(table.filter(split="heldout")["prompt"])

    first = heldout(ROWS)
    shuffled = random.Random(1).sample(ROWS, 20)
    assert heldout(shuffled) == heldout([r | {"more": 1} for r in ROWS]) == first
    assert heldout(ROWS, seed=1) != first


def test_repeated_prompts_stay_together_and_stay_distinct(project):
    table = project.of_rows(ROWS * 3, file={"heldout_prompts": 6})
    sides = table.group_by("prompt").agg(pl.col("split").n_unique(), pl.col("prompt_id").n_unique())
    assert sides["split"].to_list() == [1] * 20
    assert sides["prompt_id"].to_list() == [3] * 20
    assert project.report["duplicates"] == {"train": 36, "heldout": 4}
    assert "36 train prompts repeat another one; each counts" in project.journal.said


def test_taking_fewer_keeps_the_same_prompts(project):
    def taken(**counts):
        write(Path("test.jsonl"), [{"prompt": f"held {n}"} for n in range(9)])
        return project.of_rows(ROWS, file={"heldout": "test.jsonl", "heldout_prompts": None} | counts)

    many, few = taken(train_prompts=12), taken(train_prompts=5, heldout_prompts=4)
    assert few.filter(split="train").height == 5
    assert few.filter(split="heldout").height == 4
    assert set(few.filter(split="train")["prompt"]) < set(many.filter(split="train")["prompt"])
    assert many.filter(split="heldout").height == 9


def test_same_bytes_twice(project):
    found = set()
    for _ in range(2):
        project.of_rows(ROWS * 2, file={"heldout_prompts": 4}, too_long="drop")
        found.add((paths.PROMPTS.read_bytes(), paths.PROMPTS_JSON.read_bytes()))
    assert len(found) == 1


class TestDatasets:
    """The library `datasets`."""

    @pytest.fixture
    def datasets(self):
        return pytest.importorskip("datasets")

    def test_saved_splits_keep_their_types(self, project, datasets):
        rows = [{"prompt": f"q{n}", "x": n, "none": None, "o": {"a": [n]}} for n in range(4)]
        splits = {"train": datasets.Dataset.from_list(rows[:3]), "test": datasets.Dataset.from_list(rows[3:])}
        datasets.DatasetDict(splits).save_to_disk("saved")
        table = project.prepare(dataset={"path": "saved", "heldout_split": "test"})
        assert table["prompt_id"].to_list() == ["heldout-00001", "train-00001", "train-00002", "train-00003"]
        assert own(table).sort("x").to_dicts() == [{name: r[name] for name in ("x", "none", "o")} for r in rows]

    def test_a_single_saved_dataset_in_an_order_of_its_own(self, project, datasets):
        data = datasets.Dataset.from_list(ROWS).shuffle(seed=3).select(range(10))
        data.save_to_disk("one")
        table = project.prepare(dataset={"path": "one", "heldout_prompts": 2})
        numbers = table["prompt_id"].str.slice(-5).cast(int)
        assert [data[number - 1]["prompt"] for number in numbers] == table["prompt"].to_list()

    def test_what_a_hub_id_stood_for_is_kept(self, project, datasets, monkeypatch):
        """Of the splits that are read; the library holds the addresses with the commit in them."""
        commit = "0123456789abcdef0123456789abcdef01234567"
        data = datasets.Dataset.from_list([{"prompt": f"q{n}"} for n in range(4)])
        data.info.download_checksums = {f"hf://datasets/owner/name@{commit}/train.parquet": {"num_bytes": 1}}
        data._fingerprint = "of the split"
        monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: data)
        project.prepare(dataset={"path": "owner/name", "heldout_prompts": 2})
        source = project.report["source"]
        assert source["resolved"] == {"train": {"commit": commit, "fingerprint": "of the split"}}
        assert source["revision"] is None
        data.info.download_checksums = None
        project.prepare(dataset={"path": "owner/name", "heldout_prompts": 2})
        assert project.report["source"]["resolved"] == {"train": {"fingerprint": "of the split"}}

    def test_a_folder_has_nothing_to_resolve(self, project, datasets):
        datasets.Dataset.from_list(ROWS).save_to_disk("one")
        project.prepare(dataset={"path": "one", "heldout_prompts": 2})
        assert "resolved" not in project.report["source"]

    def test_a_folder_of_files(self, project, datasets, monkeypatch, tmp_path):
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        Path("plain").mkdir()
        write(Path("plain/train.jsonl"), ROWS)
        table = project.prepare(dataset={"path": "plain", "heldout_prompts": 2})
        assert table.height == 20
        assert any(
            "the types of its columns are those that the library datasets reads" in s for s in project.journal.said
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"path": "nobody/nothing"},
                r"dataset.path = 'nobody/nothing': cannot be loaded: .*a hub id that can be reached",
            ),
            ({"path": "no_such_folder"}, r"dataset.path = 'no_such_folder': cannot be loaded"),
            ({"path": "saved", "train_split": "dev"}, r"dataset.train_split = 'dev': saved has only 'train', 'test'"),
            ({"path": "saved", "heldout_split": "dev"}, r"dataset.heldout_split = 'dev': saved has only"),
            ({"path": "saved", "name": "main"}, r"dataset.name: saved is a folder, which has none"),
        ],
    )
    def test_told(self, project, datasets, options, message):
        data = datasets.Dataset.from_list(ROWS[:3])
        datasets.DatasetDict({"train": data, "test": data}).save_to_disk("saved")
        with pytest.raises(ParamsError, match=message):
            project.prepare(dataset={"heldout_prompts": 1, **options})


class TestGym:
    """Tasks of reasoning-gym."""

    @pytest.fixture(autouse=True)
    def gym(self):
        return pytest.importorskip("reasoning_gym")

    def task(self, project, **options):
        return project.prepare(gym={"task": "leg_counting", "train": 6, "heldout": 3, **options})

    def test_entries_are_whole_and_those_held_out_come_later(self, project, gym):
        table = self.task(project, seed=5, config={"max_animals": 4})
        entries = [json.loads(text) for text in table["gym_entry"]]
        places = [entry["metadata"]["source_index"] for entry in entries]
        assert places == [6, 7, 8, 0, 1, 2, 3, 4, 5]
        dataset = gym.create_dataset("leg_counting", seed=5, size=9, max_animals=4)
        for row, entry in zip(table.to_dicts(), entries, strict=True):
            original = dataset[entry["metadata"]["source_index"]]
            assert entry == json.loads(json.dumps(original))
            assert (row["prompt"], row["answer"], row["gym_task"]) == (
                original["question"],
                original["answer"],
                "leg_counting",
            )
            assert dataset.score_answer(row["answer"], entry) == 1.0

    def test_the_config_is_kept_for_the_scorer(self, project):
        config = {"min_num_decimal_places": 1, "max_num_decimal_places": 1}
        table = self.task(project, task="decimal_arithmetic", config=config)
        assert table["gym_config"].unique().to_list() == [json.dumps(config, sort_keys=True)]
        completions = [str(Decimal(answer) + Decimal("0.05")) for answer in table["answer"]]
        assert gym_reward(completions, **{n: table[n].to_list() for n in GYM_COLUMNS}) == [1.0] * 9

    def test_an_answer_that_is_no_text_is_refused(self, project, gym, monkeypatch):
        from reasoning_gym.arithmetic.leg_counting import LegCountingDataset

        made = LegCountingDataset.__getitem__
        monkeypatch.setattr(LegCountingDataset, "__getitem__", lambda *a: made(*a) | {"answer": 5})
        with pytest.raises(ParamsError, match="its answer is a int, and a completion is a text"):
            self.task(project)

    def test_more_held_out_ones_leave_the_training_prompts(self, project):
        one, other = self.task(project), self.task(project, heldout=9)
        assert one.filter(split="train").equals(other.filter(split="train"))
        assert not one.equals(self.task(project, seed=1))

    def test_repeated_questions_are_passed_over(self, project):
        table = self.task(project, task="coin_flip", train=60, heldout=20, config={"max_trials": 12})
        assert table["prompt"].n_unique() == table.height == 80
        assert any("entries repeat a question, and are passed over" in said for said in project.journal.said)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"task": "leg_countin"},
                "gym.task = 'leg_countin': reasoning-gym has no such task; did you mean leg_counting",
            ),
            (
                {"config": {"max_animal": 3}},
                "gym.config.max_animal: leg_counting has no such option; did you mean max_animals",
            ),
            ({"config": {"size": 3}}, "gym.config.size: set prepare.prompts.gym.train and heldout instead"),
            ({"config": {"max_animals": -1}}, "gym.config: leg_counting with .* refuses it: AssertionError"),
            (
                {"task": "coin_flip", "train": 10**3},
                "coin_flip has .* different questions among its first .*; ask for fewer",
            ),
            ({"task": "graph_color"}, "gym.task = 'graph_color': entry 1 cannot be kept as JSON"),
        ],
    )
    def test_told(self, project, options, message):
        with pytest.raises(ParamsError, match=message):
            self.task(project, **options)


def real(name):
    folders = [Path(os.environ["RLOO_DATA"])] if "RLOO_DATA" in os.environ else []
    found = [folder / name for folder in [*folders, Path(__file__).parents[4] / "shared" / "data"]]
    return next((str(path) for path in found if path.exists()), None)


@pytest.mark.parametrize(
    ("name", "rename", "rows", "columns"),
    [
        ("gsm8k_test.jsonl", {"question": "prompt"}, 1319, {"answer"}),
        ("SVAMP.json", {"Question": "prompt"}, 1000, {"ID", "Body", "Equation", "Answer", "Type"}),
        ("ifeval_input_data.jsonl", {}, 541, {"key", "instruction_id_list", "kwargs"}),
    ],
)
def test_real_prompts(project, name, rename, rows, columns):
    path = real(name)
    if path is None:
        pytest.skip("the real data is not there")
    options = {"train": path, "rename": rename, "heldout_prompts": 100}
    table = project.prepare(file=options, max_tokens=400, too_long="drop")
    assert set(own(table).columns) == columns
    assert table.height + len(project.report["dropped"]) == rows
    assert table.filter(split="heldout").height == 100
    assert table["prompt_ids"].list.len().max() <= 400
    with pytest.raises(StageError, match="rendered prompts have more than 20 tokens"):
        project.prepare(file=options, max_tokens=20)
