"""DVC's own files after a kill: what is damaged is put right, and nothing that was finished is computed again."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dvc.exceptions import ReproductionError
from dvc.repo import Repo

from pipeline.door import open_repo
from pipeline.dvc_files import COPIES, LOCK, RWLOCK, keep_lock, replaced
from pipeline.heal import heal
from pipeline.lock_text import entry_text, is_whole, without_entry

DAG = """
stages:
  first:
    cmd: echo first >> ran.log; cp source made
    deps: [source]
    outs: [made]
  second:
    cmd: echo second >> ran.log; mkdir folder; cp made folder/one
    deps: [made]
    params: [number]
    outs: [folder]
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small DAG, up to date."""
    folder = tmp_path_factory.mktemp("healed")
    before = Path.cwd()
    os.chdir(folder)
    try:
        for command in (("git", "init", "-q"), (sys.executable, "-m", "dvc", "init", "-q")):
            subprocess.run(command, check=True)
        for name in ("dvc.yaml", "source", "params.yaml"):
            Path(name).write_text({"dvc.yaml": DAG, "params.yaml": "number: 0.5\n"}.get(name, "text\n"))
        with open_repo() as repo:
            repo.reproduce()
    finally:
        os.chdir(before)
    return folder, (folder / "dvc.lock").read_text()


@pytest.fixture
def workspace(finished, monkeypatch):
    folder, text = finished
    monkeypatch.chdir(folder)
    LOCK.write_text(text)
    RWLOCK.unlink(missing_ok=True)
    for copy in COPIES.glob("*"):
        copy.unlink()
    return text


def test_the_copy_is_taken_where_the_lock_was_cut_off(workspace):
    keep_lock()
    LOCK.write_text(workspace[:-9])
    assert heal() == ["dvc.lock was cut off; its last whole copy takes its place"]
    assert LOCK.read_text() == workspace


@pytest.mark.parametrize("part", [0.0, 0.05, 0.3, 0.5, 0.62, 0.8, 0.98])
@pytest.mark.parametrize("copied", [False, True])
def test_nothing_finished_is_computed_again(workspace, part, copied):
    ran = Path("ran.log").read_text()
    if copied:
        keep_lock()
    LOCK.write_text(workspace[: int(len(workspace) * part)])
    heal()
    with Repo() as repo:
        repo.reproduce()
    assert Path("ran.log").read_text() == ran
    assert LOCK.read_text() == workspace


def test_of_a_part_of_a_lock_no_broken_hash_is_believed(workspace):
    hashes = set(re.findall(r"md5: (.*)", workspace))
    for length in range(len(workspace)):
        part = workspace[:length]
        assert not is_whole(part) or set(re.findall(r"md5: (.*)", part)) - {""} <= hashes
    assert is_whole(workspace)


def test_one_entry_is_cut_out_to_the_letter(workspace):
    without = without_entry(workspace, "second")
    assert without + entry_text(workspace, "second") == workspace
    assert without_entry(without, "first") == ""
    assert entry_text(workspace, "third") == ""


@pytest.mark.parametrize("content", ["", '{"read": {"x"', '{"write": 3}', "null"])
def test_a_cut_off_rwlock_is_removed(workspace, content):
    RWLOCK.write_text(content)
    assert heal() == [".dvc/tmp/rwlock was cut off, and is removed"]
    assert not RWLOCK.exists()


def test_entries_of_the_dead_and_of_numbers_that_others_have_now_are_removed(workspace):
    inside = subprocess.Popen(["sleep", "60"])
    outside = subprocess.Popen(["sleep", "60"], cwd="/")
    dead = subprocess.Popen(["true"])
    dead.wait()
    try:
        infos = [{"pid": pid, "cmd": "dvc repro"} for pid in (inside.pid, outside.pid, dead.pid, os.getpid())]
        made = str(Path("made").resolve())
        RWLOCK.write_text(json.dumps({"write": {made: infos[1]}, "read": {made: infos, "other": infos[2:]}}))
        assert len(heal()) == 3
        assert json.loads(RWLOCK.read_text()) == {"write": {}, "read": {made: infos[:1]}}
    finally:
        inside.kill()
        outside.kill()


def test_half_copied_files_are_removed_and_whole_ones_stay(workspace):
    half = Path(".dvc/cache/files/md5/ab") / f".{'x' * 22}.tmp"
    half.parent.mkdir(exist_ok=True)
    half.write_text("ha")
    assert heal() == []  # somebody may be copying it now
    os.utime(half, (1.0, 1.0))
    assert "1 file(s)" in heal()[0]
    assert not half.exists()
    assert heal() == []


@pytest.mark.parametrize("inside", [None, f".{'x' * 22}.tmp"])
def test_a_folder_of_the_run_cache_that_was_made_and_not_filled_is_removed(workspace, inside):
    """DVC was killed between the two: it would fail at that folder each time."""
    LOCK.unlink()
    key = next(path for path in Path(".dvc/cache/runs").glob("*/*") if "first" in next(path.iterdir()).read_text())
    entry = next(key.iterdir())
    text = entry.read_text()
    entry.unlink()
    if inside:
        (key / inside).write_text("cmd: ec")
        os.utime(key / inside, (1.0, 1.0))
    else:
        with Repo() as repo, pytest.raises(ReproductionError):
            repo.reproduce()
    assert "folder(s) in" in heal()[-1]
    assert not key.exists()
    with Repo() as repo:
        repo.reproduce()
    assert next(key.iterdir()).read_text() == text


def test_a_file_that_is_replaced_is_whole_whenever_its_writer_is_killed(tmp_path):
    path, rng = tmp_path / "dvc.lock", random.Random(0)
    texts = [letter * 300_000 + "\n" for letter in "ab"]
    path.write_text(texts[0])
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            for number in range(10**6):
                with replaced(path) as file:
                    for start in range(0, 300_001, 1000):
                        file.write(texts[number % 2][start : start + 1000])
        time.sleep(rng.uniform(0.001, 0.02))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert path.read_text() in texts
