"""Loss of power: what was not synced is gone, and renames that were not synced may or may not have happened.

A child runs a stage and stops at its n-th call of fsync or rename, for every n. What it had synced is in a log; every
other file that it wrote is then cut to nothing. The same command must give the bytes of an undisturbed run.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from stages.common import paths
from stages.common.manifest import read_manifest, write_manifest
from stages.common.record import recording
from stages.common.tables import KEY, SCORES, reward_schema, write_table
from tests.workspace import ROOT

# Runs `advantage i0001`; logs what fsync and rename see, and ends the process at the n-th of them.
CHILD = """
import json, os, sys
stop, log = int(sys.argv[1]), open(sys.argv[2], "a", buffering=1)
calls, plain = 0, {name: getattr(os, name) for name in ("fsync", "rename", "replace")}

def look(name, path, *more):
    global calls
    calls += 1
    stat = os.stat(path)
    files = sorted(os.listdir(path)) if os.path.isdir(path) else stat.st_size
    log.write(json.dumps([name, stat.st_ino, str(path), files, *map(str, more)]) + chr(10))
    if calls == stop:
        os._exit(9)

def fsync(descriptor):
    look("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
    plain["fsync"](descriptor)

def renaming(name):
    def rename(source, target):
        look("rename", os.path.abspath(source), os.path.abspath(target))
        plain[name](source, target)
    return rename

os.fsync, os.rename, os.replace = fsync, renaming("rename"), renaming("replace")
from stages.entry import main
sys.exit(main("advantage", ["i0001"]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Scores of one iteration, with their manifest."""
    folder = tmp_path_factory.mktemp("power") / "project"
    folder.mkdir()
    shutil.copyfile(ROOT / "params.yaml", folder / "params.yaml")
    before = Path.cwd()
    os.chdir(folder)
    try:
        schema = SCORES | reward_schema(["constraints"])
        rewards = [1.0, 0.0, 1.0, 0.0]
        rows = [
            {
                "iteration": 1,
                "prompt_id": "p",
                "sample": sample,
                "kind": "sample",
                "length": 1,
                "task_reward": reward,
                "score": reward,
                "accepted": True,
                "in_baseline": True,
                "reward/constraints": reward,
                "status/constraints": "ok",
            }
            for sample, reward in enumerate(rewards)
        ]
        with recording("score", "i0001") as record:
            write_table(pl.DataFrame(rows, schema=schema), schema, KEY, paths.scores("i0001"))
            write_manifest(record)
    finally:
        os.chdir(before)
    return folder


def run(folder, stop, log):
    command = [sys.executable, "-c", CHILD, str(stop), str(log)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def calls(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


def copy_of(project, target):
    shutil.copytree(project, target)
    return target


@pytest.fixture(scope="module")
def undisturbed(project, tmp_path_factory):
    folder, log = copy_of(project, tmp_path_factory.mktemp("whole") / "p"), tmp_path_factory.mktemp("log") / "log"
    done = run(folder, 0, log)
    assert done.returncode == 0, done.stderr
    return folder, calls(log)


def contents(folder):
    files = (folder / "data").rglob("*")
    return {str(f.relative_to(folder)): f.read_bytes() for f in files if f.is_file() and "logs" not in f.parts}


def test_nothing_is_renamed_before_its_bytes_are_on_the_disk_and_no_rename_is_left_unsynced(undisturbed):
    _, log = undisturbed
    synced, waiting = {}, set()
    for name, inode, path, size, *target in log:
        if name == "fsync":
            synced[inode] = size
            waiting.discard(path)
        else:
            assert synced.get(inode) == size, f"{path} was renamed with bytes that were not synced"
            assert not waiting, f"{path} was renamed while {waiting} was not synced"
            waiting.add(str(Path(target[0]).parent))
    assert waiting == set()
    targets = [Path(row[-1]).name for row in log if row[0] == "rename"]
    assert targets == ["advantages.parquet", "advantage.json"]  # the manifest last


def cut_what_was_not_synced(folder, log):
    """Files that the stage wrote lose all that they have had since their last fsync."""
    synced = {inode: size for name, inode, _, size, *_ in log if name == "fsync"}
    before = {"scores.parquet", "score.json", "params.yaml"}
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in before and synced.get(path.stat().st_ino) != path.stat().st_size:
            os.truncate(path, 0)


def test_after_a_loss_of_power_the_same_command_gives_the_same_bytes(project, undisturbed, tmp_path):
    whole, log = undisturbed
    for stop in range(1, len(log) + 1):
        folder, seen = copy_of(project, tmp_path / f"p{stop}"), tmp_path / f"log{stop}"
        assert run(folder, stop, seen).returncode == 9
        cut_what_was_not_synced(folder, calls(seen)[:-1])  # the last call was not made
        os.chdir(folder)
        try:
            manifest = read_manifest(paths.manifest("advantage", "i0001"))
        finally:
            os.chdir(ROOT)
        for path, entry in (manifest or {"files": {}})["files"].items():
            assert (folder / path).stat().st_size == entry["size"], "a manifest speaks of bytes that are not there"
        if stop % 3 == 0 or stop == len(log):  # a process each
            done = run(folder, 0, tmp_path / "again")
            assert done.returncode == 0, done.stderr
            assert contents(folder) == contents(whole)
