"""Manifests: complete, the same bytes each time, and held against every file that a stage reads."""

import hashlib
import json
import os
from pathlib import Path

import polars as pl
import pytest
import yaml

from stages.common import paths
from stages.common.checked import DamagedError, check_folder, checked, reading
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.manifest import ManifestError, read_manifest, start, write_manifest
from stages.common.producers import producer_of
from stages.common.record import recording, running
from stages.common.tables import PROMPTS, read_table, write_table
from stages.entry import PARTS
from tests.workspace import ROOT

STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
COMMON = {"history.parquet", "history.csv", "over_optimisation.csv", "summary.json"}


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def outs_of(stage):
    entry = STAGES[stage].get("do", STAGES[stage])
    return [
        out if isinstance(out, str) else next(iter(out)) for key in ("outs", "metrics") for out in entry.get(key, ())
    ]


def filled(text, name):
    for variable in ("${key}", "${item}", "${last}"):
        text = text.replace(variable, name)
    return text


def entries():
    """(out, stage, name) of every out of dvc.yaml, with names filled in."""
    for dvc_stage in STAGES:
        for name in ("good", "by_dpo") if "offline" in dvc_stage else ("toy",) if "reward" in dvc_stage else ("i0007",):
            command = STAGES[dvc_stage].get("do", STAGES[dvc_stage])["cmd"]
            stage, part = filled(command, name).split()[-2:]
            for out in outs_of(dvc_stage):
                yield dvc_stage, filled(out, name), stage, part


@pytest.mark.parametrize(("dvc_stage", "out", "stage", "name"), entries())
def test_every_out_of_dvc_yaml_is_known_to_be_its_stage_s(dvc_stage, out, stage, name):
    found = producer_of(Path(out))
    if dvc_stage == "window_entry":  # these files are of the stages that made them, in the window before
        by_stem = {"advantages": "advantage", "advantage": "advantage", "history": "window_entry"}
        assert found == (by_stem.get(Path(out).stem, "update"), "i0007")
    elif Path(out).parts[1] in COMMON:
        assert found == (stage, None)
    else:
        assert found == (stage, name)
    assert producer_of(Path(out) / "deep" / "file") == found or Path(out).suffix
    assert producer_of(Path(out).absolute()) == found


def test_every_stage_has_its_manifest_among_its_outs():
    for dvc_stage, entry in STAGES.items():
        command = entry.get("do", entry)["cmd"]
        if dvc_stage != "window_entry":
            stage, name = command.split()[-2:]
            assert str(paths.manifest(stage, name)) in outs_of(dvc_stage)


@pytest.mark.parametrize(
    "path", ["my.jsonl", "data/my.jsonl", "data/my/model", "data/seconds.csv", "data", "data/logs/x"]
)
def test_files_of_users_have_no_producer(path):
    assert producer_of(Path(path)) is None


def table(ids, path=paths.PROMPTS):
    rows = [{"prompt_id": one, "split": "train", "prompt": one, "prompt_ids": [1]} for one in ids]
    return write_table(pl.DataFrame(rows, schema=PROMPTS), PROMPTS, ("prompt_id",), path)


def read():
    return read_table(paths.PROMPTS, PROMPTS, ("prompt_id",))


def folder(path, **files):
    with publish(path) as scratch:
        scratch.mkdir()
        for name, text in files.items():
            (scratch / name).write_text(text)


def prepared():
    with recording("prepare", "prompts") as record:
        table(["a", "b"])
        with publish(paths.PROMPTS_JSON) as scratch:
            scratch.write_text("{}")
        write_manifest(record)


def reference():
    with recording("sft", "policy") as record:
        folder(paths.REFERENCE, **{"config.json": "{}", "model.safetensors": "weights"})
        write_manifest(record)


def flip(path, put_back=True):
    """One bit, in place; with size and times of contents as they were."""
    path.chmod(0o644)
    before, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        with path.open("r+b") as file:
            file.write(content)
    if put_back:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_manifest_says_what_was_written_and_read():
    prepared()
    reference()
    with recording("rollout", "i0001") as record:
        read()
        check_folder(paths.REFERENCE)
        table(["x"], paths.rollouts("i0001"))
        write_manifest(record)
    found = read_manifest(paths.manifest("rollout", "i0001"))
    assert (found["stage"], found["name"]) == ("rollout", "i0001")
    assert set(found["files"]) == {"data/iterations/i0001/rollouts.parquet"}
    entry = found["files"]["data/iterations/i0001/rollouts.parquet"]
    assert entry["rows"] == 1
    assert entry["size"] == paths.rollouts("i0001").stat().st_size
    made = [read_manifest(paths.manifest(*one))["files"] for one in (("prepare", "prompts"), ("sft", "policy"))]
    listed = {path: entry["hash"] for files in made for path, entry in files.items()}
    assert found["inputs"] == {path: listed[path] for path in listed if path != str(paths.PROMPTS_JSON)}


def test_the_same_run_gives_the_same_manifest():
    prepared()
    first = paths.manifest("prepare", "prompts").read_bytes()
    prepared()
    assert paths.manifest("prepare", "prompts").read_bytes() == first


def test_outside_of_stages_nothing_is_recorded():
    with recording("prepare", "prompts"):
        assert running() is not None
    assert running() is None
    table(["a"])
    assert not paths.MANIFESTS.exists()


def test_a_stage_that_begins_has_no_manifest_any_more():
    prepared()
    with recording("prepare", "prompts") as record:
        start(record)
        assert not paths.manifest("prepare", "prompts").exists()


def test_caches_and_durations_are_in_no_manifest():
    with recording("prepare", "prompts") as record:
        for path in (paths.SECONDS_CSV, paths.DATA / ".cache" / "hashes.json", Path("elsewhere")):
            with publish(path) as scratch:
                scratch.write_text("1")
        write_manifest(record)
    assert read_manifest(paths.manifest("prepare", "prompts"))["files"] == {}


def test_publishing_for_another_stage_is_a_mistake():
    with recording("prepare", "prompts") as record:
        table(["x"], paths.rollouts("i0001"))
        with pytest.raises(ManifestError, match=r"rollouts\.parquet: not an output of prepare prompts"):
            write_manifest(record)


def test_what_is_published_inside_something_else_is_listed_once():
    with recording("critic", "initial") as record:
        with publish(paths.critic("i0000")) as scratch:
            scratch.mkdir()
            table(["x"], scratch / "pretraining.parquet")
        write_manifest(record)
    found = read_manifest(paths.manifest("critic", "initial"))["files"]
    assert list(found) == ["data/critics/i0000/pretraining.parquet"]
    assert found["data/critics/i0000/pretraining.parquet"]["rows"] == 1


def test_in_a_stage_a_table_without_a_manifest_is_not_finished():
    table(["a"])
    assert read().height == 1  # a command that looks at a run
    with recording("rollout", "i0001"), pytest.raises(ManifestError, match="prepare prompts has not finished"):
        read()


@pytest.mark.parametrize("put_back", [True, False])
@pytest.mark.parametrize("in_stage", [True, False])
def test_a_flipped_bit_is_noticed_and_named(put_back, in_stage):
    prepared()
    assert read().height == 2  # and its hash is known to this process
    flip(paths.PROMPTS, put_back)
    told = r"data/prompts\.parquet: damaged, prepare prompts wrote .*`rloo verify --repair`"
    if in_stage:
        with recording("rollout", "i0001"), pytest.raises(DamagedError, match=told):
            read()
    else:
        with pytest.raises(DamagedError, match=told):
            read()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: flip(f / "model.safetensors"), r"model\.safetensors: damaged, sft policy wrote"),
        (
            lambda f: (f / "config.json").write_text("{"),
            r"config\.json: damaged, sft policy wrote 2 bytes, and it has 1",
        ),
        (lambda f: (f / "config.json").unlink(), r"config\.json does not exist, and sft policy had made it"),
        (lambda f: (f / "adapter.json").write_text("{}"), r"adapter\.json: not made by sft policy"),
    ],
    ids=["flipped", "cut", "removed", "added"],
)
def test_a_changed_folder_is_refused(change, told):
    reference()
    check_folder(paths.REFERENCE)
    change(paths.REFERENCE)
    with recording("rollout", "i0001"), pytest.raises(ManifestError, match=told):
        check_folder(paths.REFERENCE)


def test_a_part_of_a_folder_is_checked_alone():
    reference()
    flip(paths.REFERENCE / "model.safetensors")
    with recording("prepare", "prompts") as record:
        check_folder(paths.REFERENCE, lambda path: path.suffix == ".json")
    assert list(record.read) == ["data/reference/config.json"]


def test_what_is_replaced_while_it_is_read_is_refused():
    reference()
    refused = pytest.raises(DamagedError, match="replaced while it was read")
    with recording("rollout", "i0001"), refused, reading(paths.REFERENCE):
        flip(paths.REFERENCE / "model.safetensors")


def test_another_name_for_a_file_that_is_read_changes_nothing():
    reference()
    with recording("rollout", "i0001"), reading(paths.REFERENCE):
        os.link(paths.REFERENCE / "config.json", "link")


def test_a_file_that_changes_while_its_stage_runs_is_refused():
    prepared()
    with recording("rollout", "i0001"):
        read()
        with recording("prepare", "prompts") as other:
            table(["c"])
            write_manifest(other)
        with pytest.raises(StageError, match="changed while rollout i0001 ran"):
            read()


def test_what_a_stage_has_published_itself_it_may_read():
    with recording("prepare", "prompts") as record:
        table(["a"])
        assert read().height == 1
    assert record.read == {}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": {"a": {}}}', '{"files": {}}'])
def test_a_damaged_manifest_is_named(content):
    prepared()
    path = paths.manifest("prepare", "prompts")
    path.write_text(content)
    with pytest.raises(ManifestError, match=r"manifests/prompts/prepare\.json: damaged"):
        read()


def test_the_history_that_a_window_goes_on_from_is_compared_with_the_end_of_the_window_before():
    path = paths.iteration("i0020") / "history.parquet"
    table(["a"], path)
    end = paths.WINDOWS / "w0001" / "end.json"
    end.parent.mkdir(parents=True)
    entry = {"md5": hashlib.md5(path.read_bytes()).hexdigest(), "size": path.stat().st_size}
    end.write_text(json.dumps({str(path): entry}))
    with recording("history", "i0021") as record:
        checked(path)
        assert list(record.read) == [str(path)]
    flip(path)
    with recording("history", "i0021"), pytest.raises(DamagedError, match="damaged, window_entry i0020"):
        checked(path)


def test_parts_of_stages_are_those_of_the_producers():
    made = {producer_of(Path(filled(out, "i0007"))) for stage in STAGES for out in outs_of(stage)}
    assert {(stage, part) for stage, parts in PARTS.items() for part in parts} <= made
