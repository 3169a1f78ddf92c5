"""DVC's cache and the workspace share their files, and no stage ever writes into one of them."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from tests.long_run import lock_of


def objects(cache):
    return [path for path in cache.glob("files/md5/??/*") if path.is_file()]


def damaged(cache):
    """Objects whose bytes are not what their name says."""
    named = {path: (path.parent.name + path.name).removesuffix(".dir") for path in objects(cache)}
    return [path for path, name in named.items() if hashlib.md5(path.read_bytes()).hexdigest() != name]


def test_a_checkpoint_is_on_disk_once(long_run):
    cached = {path.stat().st_ino for path in objects(long_run.folder / ".dvc/cache")}
    for name in ("policies/i0003/adapter_model.safetensors", "optimizer/i0003/optimizer.safetensors"):
        stat = (long_run.folder / "data" / name).stat()
        assert stat.st_ino in cached
        assert stat.st_nlink == 2
        assert not stat.st_mode & 0o222  # nobody writes into it by mistake


def test_lora_leaves_an_adapter_and_no_model(long_run):
    policy = long_run.folder / "data/policies/i0003"
    assert {path.name for path in policy.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    whole = (long_run.folder / "data/reference/model.safetensors").stat().st_size
    assert (policy / "adapter_model.safetensors").stat().st_size < whole / 4


STAGES = (
    "rollout@i0011",
    "score@i0011",
    "advantage@i0011",
    "diagnose@i0012",
    "update@i0011",
    "evaluate@i0012",
    "history",
)


def test_stages_that_run_again_with_other_options_write_into_no_linked_file(copied):
    before = {path.stat().st_ino for path in objects(copied.folder / ".dvc/cache")}
    copied.change("seed", 7)
    copied.change("update.learning_rate", 0.02)
    copied.change("advantage.estimator", "grpo")
    with copied.warm():
        copied.run("dvc", "repro", "-f", "-s", *STAGES)
    assert before <= {path.stat().st_ino for path in objects(copied.folder / ".dvc/cache")}
    assert damaged(copied.folder / ".dvc/cache") == []


def test_a_cache_on_another_file_system_is_linked_by_name_and_stages_replace_the_links(copied, tmp_path):
    other = Path("/dev/shm")
    if not other.exists() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system to try it on")
    cache = other / f"rloo-test-{os.getpid()}"
    try:
        shutil.move(copied.folder / ".dvc/cache", cache)
        copied.run("dvc", "config", "--local", "cache.dir", str(cache))
        copied.run("dvc", "checkout", "--relink", "update@i0012", "update@i0011", "rollout@i0012")
        weights = copied.folder / "data/policies/i0012/adapter_model.safetensors"
        assert weights.is_symlink()
        before = lock_of(copied)["update@i0012"]
        with copied.warm():
            copied.run("dvc", "repro", "-f", "-s", "update@i0012")
        assert weights.is_symlink()
        assert lock_of(copied)["update@i0012"] == before
        assert damaged(cache) == []
    finally:
        shutil.rmtree(cache, ignore_errors=True)
