"""Flipped bits in a finished run: noticed before use, named, removed from workspace and cache, and made again."""

import copy
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from pipeline.plan import make_plan, write_plan
from pipeline.verify.workspace import current

DAMAGED = {  # file: the stage that would use it, and the DVC stage that makes it; a stage that began has no manifest
    "data/iterations/i0002/eval.json": ("history i0002", "evaluate@i0002"),
    "data/optimizer/i0001/optimizer.safetensors": ("update i0002", "update@i0001"),
    "data/policies/i0001/adapter_model.safetensors": ("rollout i0002", "update@i0001"),
    "data/iterations/i0001/scores.parquet": ("advantage i0001", "score@i0001"),
    "data/reference/tokenizer.json": ("prepare policy", "sft_policy"),
    "data/base/model.safetensors": ("sft policy", "prepare_model"),
}
UNREAD = {"data/acceptance.json": "prepare_acceptance", "data/manifests/i0001/rollout.json": "rollout@i0001"}


@pytest.fixture(scope="module")
def workspace(reference, tmp_path_factory):
    """A copy of the finished run, hard links and all."""
    made = copy.copy(reference)
    made.folder = tmp_path_factory.mktemp("damaged") / "project"
    made.extra = {"COLUMNS": "200"}
    subprocess.run(["cp", "-a", str(reference.folder), str(made.folder)], check=True)
    return made


def flip(path):
    """One bit, in place, in the cache's object too; size and time of contents are put back."""
    before, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    path.chmod(before.st_mode & 0o777)


def manifests(workspace):
    return {
        str(path.relative_to(workspace.folder)): path.read_bytes()
        for path in (workspace.folder / "data/manifests").rglob("*.json")
    }


def test_inputs_of_a_manifest_are_dependencies_of_its_stage(reference):
    """And so whatever restores a stage from DVC's run cache restores the manifest that belongs to it."""
    lock = yaml.safe_load((reference.folder / "dvc.lock").read_text())["stages"]
    seen = 0
    for name, entry in lock.items():
        deps = {dep["path"] for dep in entry.get("deps", ())}
        (manifest,) = (out["path"] for out in entry["outs"] if out["path"].startswith("data/manifests/"))
        found = yaml.safe_load((reference.folder / manifest).read_text())
        for path in found["inputs"]:
            assert any(path == dep or path.startswith(f"{dep}/") for dep in deps), f"{name} reads {path}"
            seen += 1
        outs = {out["path"] for out in entry["outs"]} - {manifest}
        assert all(any(path == out or path.startswith(f"{out}/") for out in outs) for path in found["files"])
    assert seen > 100


def test_of_manifests_of_the_history_that_of_the_last_iteration_holds(tmp_path, monkeypatch):
    """So a plan that was made longer has nothing damaged, nor has a run of several windows."""
    monkeypatch.chdir(tmp_path)
    write_plan(make_plan(3, 1))
    listed = {"data/history.csv": {}, "data/summary.json": {}}
    assert current(Path("data/manifests/i0002/history.json"), listed) == {}
    assert current(Path("data/manifests/i0003/history.json"), listed) == listed
    others = {"data/policies/i0002/adapter_config.json": {}, "data/nobody/knows": {}}
    assert current(Path("data/manifests/i0002/update.json"), others) == others


def test_a_cold_process_writes_the_manifest_of_a_warm_one(workspace):
    before = manifests(workspace)
    for stage in ("rollout", "score"):
        workspace.run("python", "-m", f"stages.{stage}", "i0002")
    assert manifests(workspace) == before


def test_damage_is_noticed_named_and_mended(workspace, reference):
    assert "nothing is damaged or missing" in workspace.run("rloo", "verify")
    for path in UNREAD:
        flip(workspace.folder / path)
    with workspace.warm():
        workspace.run("python", "-m", "pipeline.stage", "advantage", "i0002")  # hashes are known to the worker
        for path, (stage, _) in DAMAGED.items():
            flip(workspace.folder / path)
            told = workspace.fail("python", "-m", "pipeline.stage", *stage.split())
            assert f"{path}: damaged" in told
            assert "`rloo verify --repair`" in told
        told = workspace.fail("rloo", "verify")
        for path, maker in {**UNREAD, **{path: maker for path, (_, maker) in DAMAGED.items()}}.items():
            assert any(path in line and maker in line for line in told.splitlines()), told
        assert "data/reference/model.safetensors" in told  # the same file under another name
        told = workspace.run("rloo", "verify", "--repair", "i0001")
        assert "update@i0001" in told
        assert "evaluate@i0002" not in told
        told = workspace.run("rloo", "verify", "--repair")
        again = told.partition("where a remote has them):")[2]
        assert all(maker in again for maker in ("prepare_model", "sft_policy", "evaluate@i0002", "prepare_acceptance"))
        assert not (workspace.folder / "data/policies/i0001/adapter_model.safetensors").exists()
        workspace.run("dvc", "repro")
    assert "nothing is damaged or missing" in workspace.run("rloo", "verify")
    assert workspace.lock() == reference.lock()
    assert manifests(workspace) == manifests(reference)
    for path in (*DAMAGED, *UNREAD):
        assert (workspace.folder / path).read_bytes() == (reference.folder / path).read_bytes()


def test_commands_that_look_at_a_run_refuse_what_is_damaged(workspace):
    flip(workspace.folder / "data/iterations/i0002/scores.parquet")
    told = workspace.fail("rloo", "show", "rows", "i0002")
    assert "data/iterations/i0002/scores.parquet: damaged, score i0002 wrote" in told
    told = workspace.run("rloo", "verify", "i0002", "--repair")
    assert "score@i0002" in told
    assert "nothing named i0009 has a manifest" in workspace.fail("rloo", "verify", "i0009")
