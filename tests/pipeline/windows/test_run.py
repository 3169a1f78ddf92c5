"""A run in windows has the bytes of a run in one; finished windows are passed by, reopened, brought up to date."""

import json
import shutil

import polars as pl
import pytest
import yaml

ITERATIONS = 5


@pytest.fixture(scope="module")
def whole(new_workspace):
    """All iterations in one window, by `dvc repro`; to be read only."""
    made = new_workspace()
    made.plan(ITERATIONS)
    with made.warm():
        made.run("dvc", "repro")
    return made


@pytest.fixture(scope="module")
def cut(new_workspace):
    """The same in windows of two, by `rloo train`: w0001 and w0002 are finished, w0003 is open."""
    made = new_workspace()
    made.run("rloo", "plan", str(ITERATIONS), "--evaluate-every", "2", "--window", "2")
    made.run("rloo", "train")
    return made


def hashes(workspace):
    """stage -> path -> hash, over the open window and the finished ones, without what only windows have."""
    found = dict(workspace.lock())
    for path in sorted(workspace.folder.glob("pipeline/windows/w*/dvc.lock")):
        if path.parent.name != open_window(workspace):
            entries = yaml.safe_load(path.read_text())["stages"]
            found |= {
                stage: {out["path"]: out["md5"] for out in entry["outs"]}
                for stage, entry in entries.items()
                if stage not in found
            }
    return {stage: outs for stage, outs in sorted(found.items()) if not stage.startswith("window_entry")}


def open_window(workspace):
    return yaml.safe_load((workspace.folder / "pipeline/plan.yaml").read_text())["window"]


def frozen(workspace, *parts):
    """The text of every file of the windows, by path."""
    files = [p for part in parts for p in sorted((workspace.folder / part).rglob("*")) if p.is_file()]
    return {str(path): path.read_bytes() for path in files}


def test_every_byte_is_that_of_a_run_in_one_window(whole, cut):
    assert open_window(cut) == "w0003"
    assert hashes(cut) == hashes(whole)


def test_the_history_is_that_of_the_whole_run(whole, cut):
    for name in ("history.parquet", "history.csv", "over_optimisation.csv", "summary.json"):
        assert (cut.folder / "data" / name).read_bytes() == (whole.folder / "data" / name).read_bytes()
    assert pl.read_parquet(cut.folder / "data/history.parquet").height == ITERATIONS + 1
    assert pl.read_csv(cut.folder / "data/seconds.csv")["seconds/update"].null_count() == 1


def test_the_open_lock_holds_the_open_window_only(cut):
    own = [stage for stage in cut.lock() if "@i000" in stage and not stage.endswith("@i0000")]
    assert {stage.split("@")[1] for stage in own} == {"i0004", "i0005"}
    assert [stage for stage in own if stage.endswith("@i0004")] == ["window_entry@i0004"]


def test_dvc_has_nothing_left_to_do_in_the_open_window(cut):
    assert cut.nothing_to_do(cut.run("dvc", "repro"))


def test_a_second_run_passes_the_finished_windows_by(cut):
    before, starts = frozen(cut, "pipeline/windows", "dvc.lock", "pipeline/plan.yaml"), cut.starts()
    cut.run("rloo", "train")
    assert cut.computed_since(starts) == set()
    assert frozen(cut, "pipeline/windows", "dvc.lock", "pipeline/plan.yaml") == before


def test_the_list_says_how_each_window_is(cut):
    lines = cut.run("rloo", "windows").splitlines()
    states = {line.split()[0]: line.split()[1:5] for line in lines if line.strip().startswith("w0")}
    assert states == {
        "w0001": ["i0001", "to", "i0002", "finished"],
        "w0002": ["i0003", "to", "i0004", "finished"],
        "w0003": ["i0005", "to", "i0005", "open"],
    }


def test_a_finished_window_is_reopened_and_dvc_works_in_it(whole, cut):
    starts = cut.starts()
    shutil.rmtree(cut.folder / "data/iterations/i0002")
    assert "i0002" in cut.fail("rloo", "show", "rows", "i0002")
    output = cut.run("rloo", "windows", "open", "i0002")
    assert "w0001 is open: i0001 to i0002" in output
    assert cut.nothing_to_do(cut.run("dvc", "repro"))
    assert cut.computed_since(starts) == set()
    assert pl.read_parquet(cut.folder / "data/history.parquet")["iteration"].to_list() == [0, 1, 2]
    cut.run("rloo", "show", "rows", "i0002")
    cut.run("rloo", "show", "rows", "i0005")  # of another window, and its files are there
    cut.run("rloo", "windows", "open", "w0003")
    assert cut.nothing_to_do(cut.run("dvc", "repro"))
    assert hashes(cut) == hashes(whole)


def test_windows_are_compared_with_each_other_and_with_a_revision(cut):
    cut.run("git", "add", "-A")
    cut.run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "finished")
    assert "no iteration in common" in cut.run("rloo", "windows", "compare", "w0001", "w0002")
    output = cut.run("rloo", "windows", "compare", "w0002", "w0002@HEAD")
    assert "12 of 12 stages have the same bytes in w0002 and w0002@HEAD" in output
    assert "git knows no revision" in cut.fail("rloo", "windows", "compare", "w0002", "w0002@nonsense")


def test_a_changed_evaluation_goes_through_all_windows_and_keeps_the_training(cut):
    starts, training = cut.starts(), {s: o for s, o in hashes(cut).items() if s.startswith(("rollout", "update"))}
    cut.change("evaluate.samples_per_prompt", 2)
    output = cut.run("rloo", "train")
    assert "w0001 (i0001 to i0002) is brought up to date: params.yaml: evaluate" in output
    assert {stage.split()[0] for stage in cut.computed_since(starts)} == {"evaluate", "judge", "history"}
    assert {s: o for s, o in hashes(cut).items() if s.startswith(("rollout", "update"))} == training
    told = cut.run("rloo", "windows", "compare", "w0002", "w0002@HEAD")
    assert "evaluate@i0004: data/iterations/i0004/eval.json" in told
    cut.change("evaluate.samples_per_prompt", 1)
    starts = cut.starts()
    cut.run("rloo", "train")
    assert cut.computed_since(starts) == set()


def test_a_pruned_window_says_so_and_is_made_again_to_the_same_bytes(whole, cut):
    lock = yaml.safe_load((cut.folder / "pipeline/windows/w0001/dvc.lock").read_text())["stages"]
    for out in lock["update@i0001"]["outs"]:
        remove(cut, out["path"], out["md5"])
    assert " 5 of " in next(line for line in cut.run("rloo", "windows").splitlines() if "w0001" in line)
    output = cut.run("rloo", "windows", "open", "w0001")
    assert "are not in DVC's cache" in output
    assert "data/policies/i0001" in output
    with cut.warm():
        cut.run("dvc", "repro")
    assert cut.lock()["update@i0001"] == whole.lock()["update@i0001"]
    cut.run("rloo", "train")
    assert hashes(cut) == hashes(whole)


def remove(workspace, path, md5):
    """From `data` and from the cache."""
    cache = workspace.folder / ".dvc/cache/files/md5"
    target, file = workspace.folder / path, cache / md5[:2] / md5[2:]
    if md5.endswith(".dir"):
        for one in json.loads(file.read_text()):
            (cache / one["md5"][:2] / one["md5"][2:]).unlink(missing_ok=True)
        shutil.rmtree(target, ignore_errors=True)
    else:
        target.unlink(missing_ok=True)
    file.unlink(missing_ok=True)
