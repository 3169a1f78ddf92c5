"""Full, read-only and other disks: the reason is told, what was there stays, and nothing half-made is left."""

import errno
import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file

from stages.common import paths
from stages.common.disk import DiskError, disk_error, telling
from stages.common.errors import StageError
from stages.common.files import publish, sweep_partial
from stages.common.journal import Journal, journal_path, journalled, read_journal
from stages.common.manifest import write_manifest
from stages.common.paths import PARTIAL
from stages.common.processes import own_identity
from stages.common.record import recording

SMALL = 1 << 20
NOTHING_LOST = "Nothing that was finished is lost"


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@contextmanager
def mounted(folder, *options):
    """A file system of its own, of one megabyte; skips where none can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder):
    """No byte is free afterwards."""
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def text(path):
    path.write_text("new" * SMALL)


def table(path):
    pl.DataFrame({"a": np.random.default_rng(0).random(SMALL)}).write_parquet(path)


def weights(path):
    save_file({"w": np.zeros(SMALL, dtype=np.float32)}, path)


def folder_of_weights(path):
    path.mkdir()
    weights(path / "model.safetensors")


WRITERS = [text, table, weights, folder_of_weights]


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_is_told_and_the_old_target_stays(write):
    with mounted(paths.DATA):
        target = paths.DATA / "target"
        target.write_text("old")
        told = rf"data/.*: No space left on device \(.* GB free there\); make room there.*{NOTHING_LOST}"
        with pytest.raises(DiskError, match=told), publish(target) as scratch:
            write(scratch)
        assert target.read_text() == "old"
        assert list(PARTIAL.glob("*")) == []
        with publish(target) as scratch:  # what was half-written takes no room any more
            scratch.write_text("x" * (SMALL // 2))


def test_a_disk_that_is_full_before_anything_is_written():
    with mounted(paths.DATA):
        PARTIAL.mkdir()
        fill(paths.DATA)
        with pytest.raises(DiskError, match="No space left"), publish(paths.PROMPTS) as scratch:
            scratch.write_text("x" * 5000)
        assert not paths.PROMPTS.exists()


def test_a_manifest_that_cannot_be_written_leaves_its_stage_unfinished():
    with mounted(paths.DATA), recording("prepare", "prompts") as record:
        with publish(paths.PROMPTS_JSON) as scratch:
            scratch.write_text("{}")
        paths.manifest("prepare", "prompts").parent.mkdir(parents=True)
        fill(paths.DATA)
        with pytest.raises(DiskError, match=r"manifests/prompts/prepare\.json: No space left"):
            write_manifest(record)
        assert not paths.manifest("prepare", "prompts").exists()


def test_a_limit_of_the_size_of_files():
    """In a child: the limit cannot be raised again."""
    script = (
        "import resource; from pathlib import Path; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "from stages.common.files import publish\n"
        "with publish(Path('target')) as scratch: scratch.write_text('x' * 5000)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=_environment())
    assert "DiskError: " in done.stderr
    assert "File too large" in done.stderr
    assert "`ulimit -f`" in done.stderr
    assert not Path("target").exists()


def _environment():
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}


def without_files(write, path):
    """No file can be opened while it writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("write", [text, weights])
def test_too_many_open_files(write):
    """The library that writes weights has no number for it: its text has."""
    with pytest.raises(DiskError, match=r"Too many open files.*`ulimit -n`"), publish(Path("target")) as scratch:
        without_files(write, scratch)
    assert not Path("target").exists()


@contextmanager
def read_only(folder):
    """Mounted so, as permissions do not stop root; by permissions for others."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        with mounted(folder):
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
            yield
    else:
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(0o755)


def test_a_folder_that_cannot_be_written_to():
    refused = pytest.raises(DiskError, match=rf"data/policies.*{NOTHING_LOST}")
    with read_only(Path("data/policies")), refused, publish(Path("data/policies/i0001")) as scratch:
        folder_of_weights(scratch)


@pytest.mark.parametrize("write", [text, folder_of_weights])
def test_a_target_on_another_disk_is_written_there_and_renamed(write):
    with mounted(Path("data/policies")):
        target = Path("data/policies/i0001")
        with publish(target) as scratch:
            assert scratch.parent == target.parent
            assert scratch.name.startswith(".")
            scratch.mkdir()
            (scratch / "a").write_text("1")
            inode = scratch.stat().st_ino
        assert target.stat().st_ino == inode  # written once
        assert sorted(target.parent.iterdir()) == [target]
        with publish(target) as scratch:
            scratch.mkdir()
            (scratch / "b").write_text("2")
        assert [file.name for file in target.iterdir()] == ["b"]
        assert sorted(target.parent.iterdir()) == [target]


def test_another_mount_of_the_same_disk_takes_a_copy():
    """A rename across mounts is refused though both are one device."""
    Path("data").mkdir()
    Path("real").mkdir()
    Path("data/policies").mkdir()
    if subprocess.run(["mount", "--bind", "real", "data/policies"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        for name in ("a", "b"):
            with publish(Path("data/policies/i0001")) as scratch:
                assert scratch.parent == PARTIAL
                scratch.mkdir()
                (scratch / name).write_text("1")
        assert [file.name for file in Path("real/i0001").iterdir()] == ["b"]
        assert sorted(path.name for path in Path("real").iterdir()) == ["i0001"]
        assert list(PARTIAL.glob("*")) == []
    finally:
        subprocess.run(["umount", "-l", "data/policies"], check=True)


def test_what_a_killed_process_left_beside_a_target_goes_when_that_is_published():
    dead = subprocess.Popen([sys.executable, "-S", "-c", ""])
    dead.wait()
    for owner in (dead.pid, own_identity()):
        Path(f".target.{owner}.partial").write_text("half")
    with publish(Path("target")) as scratch:
        scratch.write_text("new")
    assert not Path(f".target.{dead.pid}.partial").exists()
    assert Path(f".target.{own_identity()}.partial").exists()


@pytest.mark.parametrize("has_successor", [True, False])
def test_a_folder_that_was_set_aside_comes_back_unless_its_successor_is_there(has_successor):
    """Killed between the two renames, as a child that dies at its second one."""
    script = (
        "import os; from pathlib import Path; from stages.common.files import publish; renamed = []\n"
        "def watch(event, arguments):\n"
        "    if event == 'os.rename':\n"
        "        renamed.append(arguments)\n"
        "        if len(renamed) == 2: os._exit(9)\n"
        "import sys; sys.addaudithook(watch)\n"
        "with publish(Path('data/policies/i0001')) as scratch:\n"
        "    scratch.mkdir(); (scratch / 'new').touch()\n"
    )
    target = Path("data/policies/i0001")
    (target / "sub").mkdir(parents=True)
    done = subprocess.run([sys.executable, "-c", script], env=_environment())
    assert done.returncode == 9
    assert not target.exists()
    if has_successor:
        (target / "other").mkdir(parents=True)
    sweep_partial()
    assert [path.name for path in target.iterdir()] == (["other"] if has_successor else ["sub"])
    assert list(PARTIAL.glob("*")) == []


def test_other_errors_are_left_as_they_are():
    for error in (FileNotFoundError(errno.ENOENT, "no"), ValueError("x (os error 2)"), RuntimeError("full")):
        assert disk_error(error, Path("x")) is None
        with pytest.raises(type(error)), telling(Path("x")):
            raise error
    with pytest.raises(StageError, match=r"^mine$"), telling(Path("x")):
        raise StageError("mine")


def events():
    return [record["event"] for record in read_journal("score", "i0001")]


def fail_on_a_full_disk(reason):
    with journalled("score", "i0001") as journal:
        for done in range(1, 21):
            journal.progress(done, done, "rows")
        fill(paths.DATA)
        for done in range(1, 201):  # past the end of the block that the file has
            journal.progress(done, done, "rows of a rather long name " * 5)
        raise StageError(reason)


def test_on_a_full_disk_the_journal_says_how_the_stage_ended():
    reason = "the reward is wrong " * 50
    with mounted(paths.DATA):
        with pytest.raises(StageError, match="wrong"):
            fail_on_a_full_disk(reason)
        assert events()[0] == "started"
        assert read_journal("score", "i0001")[-1] == {"event": "failed", "error": reason, "transient": False}
        assert all(json.loads(line) for line in journal_path("score", "i0001").read_text().splitlines())


def test_a_journal_that_cannot_be_begun_stops_its_stage():
    with read_only(paths.DATA), pytest.raises(DiskError, match=rf"data/logs.*{NOTHING_LOST}"):
        Journal("score", "i0001")
