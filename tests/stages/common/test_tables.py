"""Tables: sorted, byte-deterministic, complete keys, declared types."""

import hashlib
import random

import polars as pl
import pytest

from stages.common.tables import (
    ADVANTAGES,
    GENERATIONS,
    GROUP,
    KEY,
    PROMPTS,
    ROLLOUTS,
    SCORES,
    TableError,
    conform,
    read_table,
    reward_schema,
    write_table,
)

SCHEMA = {"name": pl.String(), "number": pl.Int32(), "value": pl.Float64(), "ids": pl.List(pl.Int32())}
NAMED = ("name", "number")


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows(count=20):
    return [{"name": f"p{i % 5}", "number": i, "value": i / 7, "ids": list(range(i % 3))} for i in range(count)]


def frame(records):
    return pl.DataFrame(records, schema=SCHEMA)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_write_sorts_by_key(tmp_path):
    path = tmp_path / "t.parquet"
    returned = write_table(frame(rows()[::-1]), SCHEMA, NAMED, path)
    read = read_table(path, SCHEMA, NAMED)
    assert read.equals(returned)
    assert read.select(NAMED).rows() == sorted((r["name"], r["number"]) for r in rows())


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_rows_give_the_same_bytes(tmp_path, seed):
    shuffled = rows()
    random.Random(seed).shuffle(shuffled)
    write_table(frame(rows()), SCHEMA, NAMED, tmp_path / "a.parquet")
    write_table(frame(shuffled), SCHEMA, NAMED, tmp_path / "b.parquet")
    assert digest(tmp_path / "a.parquet") == digest(tmp_path / "b.parquet")


def test_other_values_give_other_bytes(tmp_path):
    write_table(frame(rows()), SCHEMA, NAMED, tmp_path / "a.parquet")
    write_table(frame(rows()).with_columns(value=pl.col("value") + 1), SCHEMA, NAMED, tmp_path / "b.parquet")
    assert digest(tmp_path / "a.parquet") != digest(tmp_path / "b.parquet")


def test_column_order_of_the_frame_does_not_matter(tmp_path):
    write_table(frame(rows()), SCHEMA, NAMED, tmp_path / "a.parquet")
    write_table(frame(rows()).select(list(SCHEMA)[::-1]), SCHEMA, NAMED, tmp_path / "b.parquet")
    assert digest(tmp_path / "a.parquet") == digest(tmp_path / "b.parquet")


def test_extra_columns_come_after_the_declared_ones(tmp_path):
    extra = frame(rows()).select(pl.lit("x").alias("subject"), pl.all())
    written = write_table(extra, SCHEMA, NAMED, tmp_path / "t.parquet")
    assert written.columns == [*SCHEMA, "subject"]
    assert read_table(tmp_path / "t.parquet", SCHEMA, NAMED)["subject"].to_list() == ["x"] * 20


def test_missing_column_is_named_and_nothing_is_written(tmp_path):
    path = tmp_path / "t.parquet"
    with pytest.raises(TableError, match=r"t\.parquet: columns \['value'\] are missing"):
        write_table(frame(rows()).drop("value"), SCHEMA, NAMED, path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("broken", "key"),
    [
        ({"name": "p2", "number": 7}, "{'name': 'p2', 'number': 7}"),  # row 7 has this key too
        ({"name": None, "number": 99}, "{'name': None, 'number': 99}"),
        ({"name": "p9", "number": None}, "{'name': 'p9', 'number': None}"),
    ],
)
def test_duplicate_or_null_key_is_named_and_nothing_is_written(tmp_path, broken, key):
    path = tmp_path / "t.parquet"
    with pytest.raises(TableError) as error:
        write_table(frame([*rows(), {"value": 0.0, "ids": [], **broken}]), SCHEMA, NAMED, path)
    assert str(error.value) == f"{path}: key {key} is incomplete or not unique"
    assert not path.exists()


def test_half_a_key_may_repeat(tmp_path):
    write_table(frame(rows()), SCHEMA, NAMED, tmp_path / "t.parquet")  # five names for twenty rows


def test_read_refuses_a_duplicate_key_that_something_else_wrote(tmp_path):
    path = tmp_path / "t.parquet"
    frame([*rows(), rows()[3]]).write_parquet(path)
    with pytest.raises(TableError, match=r"'name': 'p3', 'number': 3"):
        read_table(path, SCHEMA, NAMED)


@pytest.mark.parametrize(
    ("column", "change", "found"),
    [
        ("number", pl.col("number").cast(pl.Int64), "Int64"),
        ("value", pl.col("value").cast(pl.Float32), "Float32"),
        ("ids", pl.col("ids").cast(pl.List(pl.Int64)), r"List\(Int64\)"),
    ],
)
def test_read_refuses_a_wrong_type(tmp_path, column, change, found):
    path = tmp_path / "t.parquet"
    frame(rows()).with_columns(change).write_parquet(path)
    with pytest.raises(TableError, match=rf"t\.parquet: column {column} should be .*, found {found}"):
        read_table(path, SCHEMA, NAMED)


def test_read_refuses_a_missing_column(tmp_path):
    path = tmp_path / "t.parquet"
    frame(rows()).drop("ids").write_parquet(path)
    with pytest.raises(TableError, match=r"column ids should be .* found None"):
        read_table(path, SCHEMA, NAMED)


def test_read_says_which_file_is_missing(tmp_path):
    with pytest.raises(TableError, match=r"nowhere\.parquet does not exist; run the stage"):
        read_table(tmp_path / "nowhere.parquet", SCHEMA, NAMED)


def test_all_null_columns_keep_their_declared_types(tmp_path):
    nulls = pl.DataFrame({"name": ["a", "b"], "number": [1, 2], "value": [None, None], "ids": [None, None]})
    assert nulls.schema["value"] == pl.Null
    write_table(nulls, SCHEMA, NAMED, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet", SCHEMA, NAMED)
    assert dict(read.schema) == SCHEMA
    assert read["value"].null_count() == read["ids"].null_count() == 2


def test_a_table_without_rows_keeps_its_schema(tmp_path):
    write_table(pl.DataFrame(schema=SCHEMA), SCHEMA, NAMED, tmp_path / "t.parquet")
    assert dict(read_table(tmp_path / "t.parquet", SCHEMA, NAMED).schema) == SCHEMA


def test_integers_that_do_not_fit_are_refused():
    with pytest.raises(Exception, match="conversion"):
        conform(pl.DataFrame({"sample": [40_000]}), {"sample": pl.Int16()}, "t")


def test_fractions_are_not_truncated_to_integers():
    with pytest.raises(Exception, match="length"):
        conform(pl.DataFrame({"length": [1.7]}), {"length": pl.Int32()}, "t")


def test_wrong_type_on_writing_names_the_table(tmp_path):
    with pytest.raises(TableError, match=r"t\.parquet.*value"):
        write_table(frame(rows()).with_columns(value=pl.lit("high")), SCHEMA, NAMED, tmp_path / "t.parquet")


@pytest.mark.parametrize("schema", [ROLLOUTS, SCORES, ADVANTAGES, GENERATIONS], ids=["R", "S", "A", "G"])
def test_tables_of_completions_have_the_same_key(schema):
    assert list(schema)[:4] == list(KEY)
    assert set(GROUP) < set(KEY)
    assert schema["sample"] == pl.Int16()


def test_prompts_and_rollouts_share_only_the_prompt_id():
    assert set(PROMPTS) & set(ROLLOUTS) == {"prompt_id"}


def test_reward_schema_has_three_columns_for_each_function():
    assert list(reward_schema(["a", "b"])) == [
        "reward/a",
        "status/a",
        "message/a",
        "reward/b",
        "status/b",
        "message/b",
    ]
    assert reward_schema(["a"])["reward/a"] == pl.Float64()
