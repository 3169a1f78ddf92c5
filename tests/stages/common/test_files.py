"""Publishing: whole or not at all, and nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.common.files import publish, sweep_partial
from stages.common.paths import PARTIAL
from stages.common.processes import own_identity


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def left_behind():
    return sorted(path.name for path in PARTIAL.glob("*"))


def write_folder(path, **files):
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name).write_text(text)


def contents(path):
    return {file.name: file.read_text() for file in path.iterdir()}


def publish_half(target, kind, error):
    with publish(target) as scratch:
        if kind == "file":
            scratch.write_text("half")
        else:
            write_folder(scratch, a="half")
        raise error


def test_file_appears_at_its_target_and_folders_are_made():
    target = Path("data/iterations/i0001/rollouts.parquet")
    with publish(target) as scratch:
        scratch.write_text("new")
        assert not target.exists()
        assert scratch.parent == PARTIAL
    assert target.read_text() == "new"
    assert left_behind() == []


def test_folder_appears_at_its_target():
    target = Path("data/policies/i0001")
    with publish(target) as scratch:
        write_folder(scratch / "deep", a="1")
        assert not target.exists()
    assert contents(target / "deep") == {"a": "1"}
    assert left_behind() == []


def test_file_is_replaced():
    target = Path("file")
    target.write_text("old")
    with publish(target) as scratch:
        scratch.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


def test_folder_is_replaced_not_merged():
    target = Path("folder")
    write_folder(target, old="1", both="1")
    with publish(target) as scratch:
        write_folder(scratch, new="2", both="2")
        assert contents(target) == {"old": "1", "both": "1"}
        inode = scratch.stat().st_ino
    assert contents(target) == {"new": "2", "both": "2"}
    assert target.stat().st_ino == inode  # renamed, not copied


def test_hard_link_to_the_old_file_keeps_the_old_bytes():
    target, link = Path("file"), Path("cache")
    target.write_text("old")
    os.link(target, link)
    with publish(target) as scratch:
        scratch.write_text("new")
    assert (target.read_text(), link.read_text()) == ("new", "old")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_symbolic_link_is_replaced_and_what_it_points_to_stays(kind):
    target, cache = Path("target"), Path("cache")
    if kind == "file":
        cache.write_text("old")
    else:
        write_folder(cache, a="old")
    target.symlink_to(cache)
    with publish(target) as scratch:
        if kind == "file":
            scratch.write_text("new")
        else:
            write_folder(scratch, a="new")
    assert not target.is_symlink()
    if kind == "file":
        assert (target.read_text(), cache.read_text()) == ("new", "old")
    else:
        assert (contents(target), contents(cache)) == ({"a": "new"}, {"a": "old"})


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_exception_leaves_the_old_target_and_no_scratch(kind, error):
    target = Path("target")
    if kind == "file":
        target.write_text("old")
    else:
        write_folder(target, a="old")
    with pytest.raises(error):
        publish_half(target, kind, error)
    assert (target.read_text() if kind == "file" else contents(target)["a"]) == "old"
    assert left_behind() == []


def test_exception_makes_no_target_where_there_was_none():
    with pytest.raises(RuntimeError):
        publish_half(Path("deep/target"), "file", RuntimeError)
    assert not Path("deep").exists()


def test_block_that_writes_nothing_is_an_error_and_keeps_the_old_target():
    target = Path("target")
    target.write_text("old")
    with pytest.raises(FileNotFoundError), publish(target):
        pass
    assert target.read_text() == "old"


def test_scratch_of_an_earlier_try_is_cleared():
    with publish(Path("x/target")) as scratch:
        name = scratch
        scratch.write_text("1")
    write_folder(name, stale="1")
    with publish(Path("x/target")) as scratch:
        assert scratch == name
        write_folder(scratch, new="2")
    assert contents(Path("x/target")) == {"new": "2"}


def test_two_targets_of_one_name_do_not_share_a_scratch():
    with publish(Path("i0001/scores")) as one, publish(Path("i0002/scores")) as other:
        one.write_text("1")
        other.write_text("2")
    assert (Path("i0001/scores").read_text(), Path("i0002/scores").read_text()) == ("1", "2")


def dead_process():
    done = subprocess.Popen([sys.executable, "-S", "-c", ""])
    done.wait()
    return done.pid


def test_sweep_removes_only_what_dead_processes_left():
    dead, alive = dead_process(), own_identity()
    write_folder(PARTIAL / f"{dead}.policies.i0001", a="1")
    (PARTIAL / f"{dead}.i0001.scores.parquet").write_text("half")
    (PARTIAL / f"{alive}.i0002.scores.parquet").write_text("at work")
    write_folder(PARTIAL / f"{alive}.policies.i0002", a="1")
    (PARTIAL / "stray").write_text("no owner")
    sweep_partial()
    assert left_behind() == [f"{alive}.i0002.scores.parquet", f"{alive}.policies.i0002"]


def test_sweep_without_a_folder_does_nothing():
    sweep_partial()
    assert not PARTIAL.exists()
