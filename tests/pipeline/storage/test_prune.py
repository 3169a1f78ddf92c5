"""Pruning of finished windows on a real run: what goes and what stays, kills, other branches, going on after it."""

import json
import os
import re
import shutil
import signal
import time

import polars as pl
import pytest

from tests.long_run import drop, lock_of

GONE = ("i0001", "i0002", "i0004", "i0007", "i0008")  # keep_last 1, keep_every 3: ends are i0005 and i0010
STAY = ("i0003", "i0005", "i0006", "i0009", "i0010", "i0011", "i0012")


def objects(workspace, md5):
    cache = workspace.folder / ".dvc/cache/files/md5"
    path = cache / md5[:2] / md5[2:]
    if not path.exists():
        return {md5: False}
    listed = [one["md5"] for one in json.loads(path.read_text())] if md5.endswith(".dir") else []
    return {md5: True} | {one: (cache / one[:2] / one[2:]).exists() for one in listed}


def outs(workspace, *locks):
    """path -> hash, of the open window and these finished ones."""
    found = {}
    for lock in [f"pipeline/windows/{name}/dvc.lock" for name in locks] + ["dvc.lock"]:
        for entry in lock_of(workspace, lock).values():
            found |= {out["path"]: out["md5"] for out in entry["outs"]}
    return found


def policy(workspace, name):
    return workspace.folder / "data" / "policies" / name


def prunes(workspace, **options):
    workspace.params["storage"] |= options
    workspace.write_params()
    return workspace


def check_pruned(workspace):
    """Exactly the checkpoints of GONE are gone, from data/ and from the cache."""
    for path, md5 in outs(workspace, "w0001", "w0002").items():
        kind, name = path.split("/")[1:3] if path.count("/") >= 2 else ("", "")
        if kind in ("policies", "optimizer") and name in GONE:
            assert not any(objects(workspace, md5).values()), path
            assert not (workspace.folder / "data" / kind / name).exists()
        else:
            assert all(objects(workspace, md5).values()), path
    assert {path.name for path in (workspace.folder / "data/policies").iterdir()} == {"i0000", *STAY}


def test_by_default_nothing_is_pruned(copied):
    output = copied.run("rloo", "storage", "prune")
    assert "keep_last in params.yaml is null" in output
    assert policy(copied, "i0001").exists()


def test_a_dry_run_says_what_would_go_and_takes_nothing(copied):
    prunes(copied, keep_last=1, keep_every=3)
    before = sorted(path for path in copied.folder.rglob("*") if ".git" not in path.parts)
    output = copied.run("rloo", "storage", "prune", "--dry-run")
    assert "Pruning would remove the checkpoints of i0001, i0002, i0004, i0007, i0008" in output
    found = json.loads(copied.run("rloo", "storage", "--json"))
    assert found["prune"]["iterations"] == list(GONE)
    assert found["prune"]["kept"]["i0003"] == "every 3"
    after = sorted(path for path in copied.folder.rglob("*") if ".git" not in path.parts)
    ignored = ("tmp", "__pycache__")
    assert [p for p in before if not set(ignored) & set(p.parts)] == [
        p for p in after if not set(ignored) & set(p.parts)
    ]


def used(folder):
    """Bytes of all inodes below."""
    return sum({(s := path.lstat()).st_ino: s.st_size for path in folder.rglob("*") if path.is_file()}.values())


def test_pruning_frees_what_it_says_and_leaves_the_open_window_up_to_date(copied):
    prunes(copied, keep_last=1, keep_every=3)
    cache, data = copied.folder / ".dvc/cache/files", copied.folder / "data"
    before = len({path.lstat().st_ino for path in [*cache.rglob("*"), *data.rglob("*")] if path.is_file()})
    said = json.loads(copied.run("rloo", "storage", "--json"))["prune"]["bytes"]
    size = used(copied.folder)
    copied.run("rloo", "storage", "prune")
    assert before > len({path.lstat().st_ino for path in [*cache.rglob("*"), *data.rglob("*")] if path.is_file()})
    assert size - used(copied.folder) == pytest.approx(said, abs=20_000)  # DVC's own notes change meanwhile
    assert said > 100_000
    check_pruned(copied)
    with copied.warm():
        output = copied.run("dvc", "repro")
    assert copied.nothing_to_do(output), output
    assert "Nothing to prune" in copied.run("rloo", "storage", "prune")


def test_verify_tells_what_was_pruned_from_what_is_missing(copied):
    prunes(copied, keep_last=1, keep_every=3)
    copied.run("rloo", "storage", "prune")
    told = " ".join(copied.run("rloo", "verify").split())
    assert "pruned: checkpoints of i0001, i0002, i0004, i0007, i0008. `rloo pull w0001` brings those of w0001" in told
    assert "nothing is damaged or missing" in told
    for kind in ("critics", "policies"):
        drop(copied.folder / "data" / kind / "i0011")  # of the open window
    drop(copied.folder / "data/optimizer/i0010")  # what that starts from
    drop(policy(copied, "i0003") / "adapter_config.json")  # pruning takes no part of a folder
    told = copied.run("rloo", "verify")
    rows = re.findall(r"data/[a-z]+/i[0-9]+/", told.partition("Not as its stage wrote it")[2])
    shown = [f"data/policies/{name}/" for name in ("i0003", "i0011", "i0011")]  # the critic is the "1 more"
    assert rows == [*shown, "data/optimizer/i0010/"]
    assert "and 1 more" in told


def test_a_pruned_window_runs_again_from_its_start_to_the_same_bytes(copied, long_run):
    prunes(copied, keep_last=1)
    copied.run("rloo", "storage", "prune")
    assert "8 of its files and folders are not in DVC's cache" in copied.run("rloo", "windows", "open", "w0001")
    before = copied.starts()
    with copied.warm():
        copied.run("dvc", "repro", "update@i0005", "evaluate@i0000")
    computed = copied.computed_since(before)
    assert {"update i0001", "update i0002", "update i0003", "update i0004"} == computed  # tables are there
    assert lock_of(copied)["update@i0004"] == lock_of(long_run, "pipeline/windows/w0001/dvc.lock")["update@i0004"]


def test_a_run_prunes_each_window_that_it_finishes(copied):
    prunes(copied, keep_last=1)
    output = copied.run("rloo", "train", "--iterations", "16")
    assert "pruned" in output
    policies = {path.name for path in (copied.folder / "data/policies").iterdir()}
    assert policies == {"i0000", "i0005", "i0010", "i0015", "i0016"}
    with copied.warm():
        output = copied.run("dvc", "repro")
    assert copied.nothing_to_do(output), output
    copied.run("rloo", "plan", "12")  # a shorter run: what was saved of the longer one is no window of it
    found = json.loads(copied.run("rloo", "storage", "--json"))["prune"]
    assert set(found["kept"]) <= {f"i{number:04d}" for number in range(13)}


def test_best_by_a_column_of_the_history(copied):
    prunes(copied, keep_last=1, best="reward")
    found = json.loads(copied.run("rloo", "storage", "--json"))["prune"]["kept"]
    frame = pl.read_parquet(copied.folder / "data/history.parquet").filter(pl.col("iteration").is_between(1, 10))
    expected = frame.sort("reward", "iteration", descending=[True, False])["iteration"][0]
    assert found[f"i{expected:04d}"] in ("best reward", "end of w0001", "end of w0002")
    prunes(copied, best="no/such")
    assert "storage.best = 'no/such' is not a column of the history" in copied.fail("rloo", "storage", "prune")


@pytest.mark.parametrize("kind", ["branch", "tag", "stash", "experiment"])
def test_what_something_else_in_git_holds_stays_in_the_cache(copied, kind):
    ref = {"branch": "refs/heads/other", "tag": "refs/tags/paper", "experiment": "refs/exps/aa/bb/good"}.get(kind)
    if ref:
        copied.run("git", "update-ref", ref, "HEAD")
    else:
        with (copied.folder / "dvc.yaml").open("a") as file:
            file.write("# changed\n")
        copied.run("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "stash", "-q")
    prunes(copied, keep_last=1)
    output = copied.run("rloo", "storage", "prune")
    assert f"needed by {ref or 'refs/stash'}" in output
    assert not policy(copied, "i0001").exists()  # the workspace's own copy goes
    md5 = outs(copied, "w0001")["data/policies/i0001"]
    assert all(objects(copied, md5).values())
    if kind == "branch":  # and once nobody holds it, the next pruning takes it
        copied.run("git", "branch", "-q", "-D", "other")
        copied.run("rloo", "storage", "prune")
        assert not any(objects(copied, md5).values())


def test_the_current_branch_and_what_dvc_leaves_behind_hold_nothing(copied):
    copied.run("git", "update-ref", "refs/exps/exec/EXEC_HEAD", "HEAD")
    prunes(copied, keep_last=1, keep_every=3)
    copied.run("rloo", "storage", "prune")
    check_pruned(copied)


def test_a_cache_that_is_not_this_projects_own_is_left_alone(copied, tmp_path):
    shutil.move(copied.folder / ".dvc/cache", tmp_path / "shared")
    copied.run("dvc", "config", "--local", "cache.dir", str(tmp_path / "shared"))
    prunes(copied, keep_last=1)
    before = sorted(path.name for path in (tmp_path / "shared").rglob("*"))
    assert "the cache is outside of this project" in copied.run("rloo", "storage", "prune")
    assert sorted(path.name for path in (tmp_path / "shared").rglob("*")) == before
    assert not policy(copied, "i0001").exists()


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.01])
def test_kill_9_in_the_middle_of_pruning_harms_nothing_and_the_next_finishes(copied, delay):
    prunes(copied, keep_last=1, keep_every=3)
    process = copied.start("rloo", "storage", "prune")
    started = copied.folder / "data/.pruning.json"
    while process.poll() is None and not started.exists():
        time.sleep(0.0005)
    time.sleep(delay)
    os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
    process.wait()
    for name in STAY:
        assert (policy(copied, name) / "adapter_model.safetensors").exists()
    for name in GONE:  # a policy is there whole, or not at all
        assert not policy(copied, name).exists() or (policy(copied, name) / "adapter_model.safetensors").exists()
    copied.run("rloo", "storage", "prune")
    check_pruned(copied)
    assert not started.exists()


def test_objects_of_a_pruning_that_was_ended_after_its_listings_go_with_the_next(copied):
    """The state that a kill leaves between the removal of a listing and of the files it names."""
    prunes(copied, keep_last=1, keep_every=3)
    md5 = outs(copied, "w0001")["data/policies/i0001"]
    found = list(objects(copied, md5))
    (copied.folder / "data/.pruning.json").write_text(json.dumps({"objects": found}))
    cache = copied.folder / ".dvc/cache/files/md5"
    (cache / md5[:2] / md5[2:]).unlink()
    drop(policy(copied, "i0001"))
    copied.run("rloo", "storage", "prune")
    check_pruned(copied)
