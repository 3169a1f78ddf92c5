"""`rloo push` and `rloo pull` over a remote in a folder: a second machine goes on, and runs iterations again."""

import pytest

from pipeline.plan import make_plan, write_plan
from tests.long_run import ITERATIONS, commit, drop, lock_of, of_run, write_lock

OF_I0007 = ("rollout@i0007", "score@i0007", "advantage@i0007", "update@i0007")


def object_file(folder, md5):
    return folder / "files/md5" / md5[:2] / md5[2:]


@pytest.fixture
def pushed(copied, tmp_path):
    """A copy of the run with everything on a remote, whose name is committed."""
    copied.run("dvc", "remote", "add", "-q", "-d", "store", str(tmp_path / "remote"))
    commit(copied, "a remote")
    output = copied.run("rloo", "push")
    assert "of 3 windows sent to store" in output
    return copied


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_sent_twice_and_every_window_is_there(pushed, tmp_path):
    assert pushed.run("rloo", "push").startswith("0 files of 3 windows")
    for window in ("w0001", "w0002"):
        for entry in lock_of(pushed, f"pipeline/windows/{window}/dvc.lock").values():
            for out in entry["outs"]:
                assert object_file(tmp_path / "remote", out["md5"]).exists(), out["path"]


def test_a_second_machine_pulls_finds_nothing_to_do_and_goes_on_to_the_same_bytes(pushed, clone, tmp_path):
    second = clone(pushed, tmp_path / "second")
    output = second.run("rloo", "pull")
    assert "files came from store" in output
    assert names(second.folder / "data/policies") == [f"i{number:04d}" for number in range(13)]
    with second.warm():
        output = second.run("dvc", "repro")
        assert second.nothing_to_do(output), output
        second.run("rloo", "plan", "13")
        second.run("dvc", "repro", "update@i0013", "evaluate@i0013")
    assert {"update i0013", "rollout i0013"} <= second.computed_since({})
    assert not {stage for stage in second.computed_since({}) if stage.endswith(("i0011", "i0012"))}
    pushed.run("rloo", "plan", "13")
    with pushed.warm():
        pushed.run("dvc", "repro", "update@i0013", "evaluate@i0013")
    for stage in ("rollout@i0013", "score@i0013", "advantage@i0013", "update@i0013", "evaluate@i0013"):
        assert lock_of(second)[stage] == lock_of(pushed)[stage]


@pytest.mark.parametrize("windows", [True, False])
def test_iteration_7_of_12_runs_again_on_a_second_machine_to_the_same_hashes(pushed, clone, tmp_path, windows):
    """In a run of windows of five, whose second is opened, and in one of a single window of twenty."""
    if not windows:
        locks = [lock_of(pushed, f"pipeline/windows/{name}/dvc.lock") for name in ("w0001", "w0002")]
        stages = {name: entry for lock in [*locks, lock_of(pushed)] for name, entry in lock.items()}
        write_lock(pushed.folder / "dvc.lock", {n: e for n, e in stages.items() if not n.startswith("window_entry")})
        write_plan(make_plan(ITERATIONS, 6), pushed.folder / "pipeline/plan.yaml")
        drop(pushed.folder / "pipeline/windows/w0001")
        drop(pushed.folder / "pipeline/windows/w0002")
        commit(pushed, "one window")
    second = clone(pushed, tmp_path / "second")
    if windows:
        second.run("rloo", "windows", "open", "w0002")
    expected = {stage: lock_of(second)[stage] for stage in OF_I0007}
    second.run("rloo", "pull", "i0007")
    assert names(second.folder / "data/policies") == ["i0006", "i0007"]
    with second.warm():
        second.run("dvc", "repro", "-f", "-s", *OF_I0007)
    assert {stage.replace("@", " ") for stage in OF_I0007} == second.computed_since({})
    assert {stage: lock_of(second)[stage] for stage in OF_I0007} == expected


def test_what_was_pruned_after_the_push_comes_back_by_name_and_only_by_name(pushed):
    pushed.params["storage"] |= {"keep_last": 1}
    pushed.write_params()
    pushed.run("rloo", "storage", "prune")
    pushed.run("rloo", "pull")
    assert names(pushed.folder / "data/policies") == ["i0000", "i0005", "i0010", "i0011", "i0012"]
    assert pushed.run("rloo", "push").startswith("0 files")
    pushed.run("rloo", "pull", "w0001", "i0007")
    assert names(pushed.folder / "data/policies") == [
        f"i{number:04d}" for number in (0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12)
    ]
    assert (pushed.folder / "data/policies/i0002/adapter_model.safetensors").stat().st_nlink == 2


def test_what_was_pruned_before_the_push_is_said_and_is_no_failure(copied, clone, tmp_path):
    copied.run("dvc", "remote", "add", "-q", "-d", "store", str(tmp_path / "remote"))
    copied.params["storage"] |= {"keep_last": 1}
    copied.write_params()
    commit(copied, "prunes")
    copied.run("rloo", "storage", "prune")
    assert "pruned, and not there either: checkpoints of i0001, i0002, i0003, i0004, i0006" in copied.run(
        "rloo", "push"
    )
    second = clone(copied, tmp_path / "second")
    second.run("rloo", "pull")
    output = second.run("rloo", "pull", "w0001")
    assert "pruned before they were pushed: checkpoints of i0001, i0002, i0003, i0004" in output
    with second.warm():
        output = second.run("dvc", "repro")
    assert second.nothing_to_do(output), output


def test_a_table_that_is_in_no_place_fails_the_push_with_its_name(copied, tmp_path):
    copied.run("dvc", "remote", "add", "-q", "-d", "store", str(tmp_path / "remote"))
    out = lock_of(copied, "pipeline/windows/w0001/dvc.lock")["score@i0002"]["outs"][0]
    object_file(copied.folder / ".dvc/cache", out["md5"]).unlink()
    output = copied.fail("rloo", "push")
    assert f"{out['path']}: neither in the cache nor in store" in output
    assert not (tmp_path / "remote/files").exists()


@pytest.mark.parametrize("damage", ["other bytes", "gone"])
def test_a_damaged_file_of_the_remote_is_named_and_not_taken(pushed, clone, tmp_path, damage):
    out = lock_of(pushed)["score@i0012"]["outs"][0]
    file = object_file(tmp_path / "remote", out["md5"])
    file.chmod(0o644)
    if damage == "gone":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    second = clone(pushed, tmp_path / "second")
    assert out["path"] in second.fail("rloo", "pull")
    assert not object_file(second.folder / ".dvc/cache", out["md5"]).exists()
    assert not (second.folder / out["path"]).exists()


def test_a_file_that_is_in_no_cache_is_not_written_over(pushed):
    table = pushed.folder / "data/iterations/i0003/rollouts.parquet"
    table.unlink()
    table.write_text("mine")
    assert "i0003/rollouts.parquet has bytes that are in no cache" in pushed.fail("rloo", "pull", "i0003")
    assert table.read_text() == "mine"


def test_what_cannot_be_is_refused_with_the_remedy(copied):
    assert "`dvc remote add -d NAME URL` adds a remote" in copied.fail("rloo", "push")
    copied.run("dvc", "remote", "add", "-q", "-d", "store", "/nowhere")
    output = copied.fail("rloo", "pull", "i0013")
    assert "no window has 'i0013'; there are w0001 (i0001 to i0005), w0002 (i0006 to i0010), w0003" in output


def test_the_lock_of_every_window_has_what_comes_before_the_first_iteration(long_run):
    """What this file takes for granted of windows."""
    for lock in ("pipeline/windows/w0001/dvc.lock", "pipeline/windows/w0002/dvc.lock", "dvc.lock"):
        assert {"prepare_prompts", "prepare_policy", "history"} <= set(of_run(lock_of(long_run, lock)))
