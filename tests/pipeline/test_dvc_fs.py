"""DVC that is shown one stage's entry of dvc.lock writes the same lock as DVC that sees all of it, and less slowly."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from fsspec.implementations.memory import MemoryFile

from pipeline.door import StageId, open_repo, reproduce
from pipeline.dvc_files import LOCK
from pipeline.lock_text import EMPTY, HEADER, entries, is_whole, only, split, with_entry

STAGES = ("one", "two", "three@a", "three@b", "four")
DAG = """
stages:
  one:
    cmd: echo a-command-that-is-so-long-that-it-is-folded-by-whoever-writes-it as-yaml-of-eighty-columns >> ran; cp s m1
    deps: [s]
    outs: [m1]
  two:
    cmd: mkdir m2; cp m1 'm2/a name'; cp m1 m2/b
    deps: [m1]
    params: [number, text, nested.list]
    outs: [m2]
  three:
    foreach: [a, b]
    do:
      cmd: cp -r m2 m3-${item}
      deps: [m2]
      outs: ["m3-${item}"]
  four:
    cmd: cat m3-a/b m3-b/b > m4
    deps: [m3-a, m3-b]
    metrics: [{m4: {cache: false}}]
"""
PARAMS = {"number": 5e-4, "text": "a: 'b'", "nested": {"list": [1, None, {"x": "y"}]}}


def made(folder: Path) -> Path:
    folder.mkdir()
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(command, check=True, cwd=folder)
    (folder / "dvc.yaml").write_text(DAG)
    (folder / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    (folder / "s").write_text("0.5\n")
    return folder


def run(folder: Path, opened, monkeypatch: pytest.MonkeyPatch, stages=STAGES) -> list[str]:
    """dvc.lock after each stage."""
    monkeypatch.chdir(folder)
    texts = []
    for stage in stages:
        with opened(stage) as repo:
            repo.reproduce(stage, single_item=True)
        texts.append(LOCK.read_text())
    return texts


def test_the_lock_is_the_same_to_the_letter(tmp_path, monkeypatch):
    whole, narrow = made(tmp_path / "whole"), made(tmp_path / "narrow")
    expected = run(whole, lambda stage: Repo(), monkeypatch)
    assert run(narrow, open_repo, monkeypatch) == expected
    assert len(set(expected)) == len(STAGES)
    for folder in (whole, narrow):
        (folder / "s").write_text("0.25\n")
        (folder / "params.yaml").write_text(yaml.safe_dump(PARAMS | {"number": 7}))
    again = run(whole, lambda stage: Repo(), monkeypatch)
    assert run(narrow, open_repo, monkeypatch) == again != expected
    with Repo() as repo:  # and is good to DVC
        assert repo.status() == {}


def test_what_others_wrote_meanwhile_stays(tmp_path, monkeypatch):
    folder = made(tmp_path / "a")
    run(folder, open_repo, monkeypatch, STAGES[:2])
    LOCK.write_text(without := with_entry(LOCK.read_text(), "own", HEADER + "  own:\n    cmd: while two ran\n"))
    (folder / "s").write_text("1\n")
    (text,) = run(folder, open_repo, monkeypatch, STAGES[:1])
    assert list(split(text, LOCK)) == ["one", "two", "own"]
    assert split(text, LOCK)["own"] == split(without, LOCK)["own"]


def test_a_long_run_holds_no_more_than_a_short_one(tmp_path, monkeypatch):
    monkeypatch.chdir(made(tmp_path / "a"))
    for stage in STAGES:
        reproduce(StageId(stage, stage, "a"))
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, MemoryFile)]


def test_a_lock_that_has_more_than_stages_is_shown_as_it_is(tmp_path, monkeypatch):
    folder = made(tmp_path / "a")
    run(folder, open_repo, monkeypatch, STAGES[:1])
    text = LOCK.read_text() + "datasets: []\n"
    LOCK.write_text(text)
    run(folder, open_repo, monkeypatch, STAGES[1:2])
    found = yaml.safe_load(LOCK.read_text())
    assert (list(found), list(found["stages"])) == (["schema", "stages", "datasets"], ["one", "two"])
    assert (is_whole(text), entries(text), only(text, "one")) == (True, None, None)


def test_an_entry_takes_its_place_or_the_last():
    lock = HEADER + "  a:\n    cmd: x\n  ab:\n    cmd: y\n"
    assert with_entry(lock, "a", HEADER + "  a:\n    cmd: z\n") == lock.replace("x", "z")
    assert with_entry(lock, "b", HEADER + "  b:\n    cmd: z\n") == lock + "  b:\n    cmd: z\n"
    for empty in ("", EMPTY):
        assert with_entry(empty, "b", HEADER + "  b:\n    cmd: z\n") == HEADER + "  b:\n    cmd: z\n"
    assert only(lock, "ab") == HEADER + "  ab:\n    cmd: y\n"
    assert only(lock, "b") == EMPTY


@pytest.mark.parametrize(
    "end", ["  a:\n", "  a:\n    outs: x\n    cmd: a\n", "  a:\n    deps:\n    - path: b\n", "  a: [\n"]
)
def test_an_entry_that_is_no_stage_is_not_whole(end):
    assert is_whole(HEADER + "  b:\n    cmd: x\n")
    assert not is_whole(HEADER + "  b:\n    cmd: x\n" + end)
