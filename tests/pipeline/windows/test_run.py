"""A run in windows has the bytes of a run in one; finished windows are passed by, reopened, brought up to date."""

import json
import re
import shutil
import signal
import time

import polars as pl
import pytest
import yaml

from pipeline.storage.page import size
from tests.pipeline.windows.hashes import frozen, hashes, open_window, remove

ITERATIONS = 5


@pytest.fixture(scope="module")
def whole(new_workspace):
    """All iterations in one window; to be read only."""
    made = new_workspace()
    made.plan(ITERATIONS)
    made.run("rloo", "train")
    return made


@pytest.fixture(scope="module")
def cut(new_workspace):
    """The same in windows of two, by `rloo train`: w0001 and w0002 are finished, w0003 is open."""
    made = new_workspace()
    made.run("rloo", "plan", str(ITERATIONS), "--evaluate-every", "2", "--window", "2")
    made.run("rloo", "train")
    return made


SWITCHES = """
from dvc.repo import Repo
from pipeline.plan import read_plan
from pipeline.windows.layout import find
from pipeline.windows.lock import stages_of
from pipeline.windows.switch import settle, steps
from pipeline.windows.walk import open_window

for done in range(7):
    for step in steps(read_plan(), find("w0001"))[:done]:
        step()
    plan = read_plan()
    with Repo() as repo, repo.lock:
        changed = [name for name in sorted(stages_of(plan)) if repo.stage.load_one(name=name).status()]
    settle(plan)
    print("cut off after", done, plan.window, changed)
    open_window(find("w0003"))
"""


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
    states = {line.split()[0]: line.split()[1:3] for line in lines if line.strip().startswith("w0")}
    assert states == {
        "w0001": ["i0001-i0002", "finished"],
        "w0002": ["i0003-i0004", "finished"],
        "w0003": ["i0005-i0005", "open"],
    }


def test_a_list_of_windows_and_that_of_storage_count_the_same_bytes(cut):
    lines = cut.run("rloo", "windows").splitlines()
    found = json.loads(cut.run("rloo", "storage", "--json"))["windows"]
    assert len(found) == 3
    for row in found:
        (line,) = (line for line in lines if line.split()[:1] == [row["window"]])
        assert f" {size(row['all'])} " in line
        assert line.split()[-1] == "none"  # of its checkpoints was pruned


def test_verify_looks_at_the_files_that_all_windows_share_by_the_open_one_alone(cut):
    for window in ("w0001", "w0003"):
        cut.run("rloo", "windows", "open", window)
        assert "nothing is damaged or missing" in cut.run("rloo", "verify")
    history = cut.folder / "data/history.csv"
    content = history.read_bytes()
    history.unlink()
    history.write_bytes(content.replace(b"0.", b"1.", 1))
    told = cut.fail("rloo", "verify")
    assert re.search(r"damaged │ data/history.csv +│ history ", told)
    assert "data/manifests" not in told
    cut.run("rloo", "verify", "--repair")
    cut.run("dvc", "checkout", "history")
    assert history.read_bytes() == content


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


def test_a_switch_that_is_cut_off_after_any_step_leaves_one_window_whole(cut):
    files = ("pipeline/plan.yaml", "data/.dvcignore", "pipeline/windows/w0001/dvc.lock")
    before, lock = frozen(cut, *files), cut.lock()
    found = [line for line in cut.run("python", "-c", SWITCHES).splitlines() if line.startswith("cut off")]
    assert [line.split()[4] for line in found] == 4 * ["w0003"] + 3 * ["w0001"]
    assert [line for line in found if not line.endswith(("[]", "['history']"))] == []
    assert frozen(cut, *files) == before
    assert cut.lock() == lock


def test_kill_9_in_the_middle_of_switches_then_the_same_bytes_with_nothing_to_compute(whole, cut):
    starts, plan, aside = cut.starts(), cut.folder / "pipeline/plan.yaml", cut.folder / "pipeline/windows/w0003"
    moments = (
        lambda: (cut.folder / "pipeline/windows/.partial").exists(),
        aside.exists,
        lambda: "@i0001" in (cut.folder / "dvc.lock").read_text(),
        lambda: "window: w0001" in plan.read_text(),
    )
    for moment in moments:
        shutil.rmtree(aside, ignore_errors=True)
        process = cut.start("rloo", "windows", "open", "w0001")
        while not moment() and process.poll() is None:
            time.sleep(0.0001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if open_window(cut) == "w0001":
            cut.run("rloo", "windows", "open", "w0003")
    cut.run("rloo", "train")
    assert cut.computed_since(starts) == set()
    assert hashes(cut) == hashes(whole)


def test_windows_are_compared_with_each_other_and_with_a_revision(cut):
    cut.run("git", "add", "-A")
    cut.run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "finished")
    assert "no iteration in common" in cut.run("rloo", "windows", "compare", "w0001", "w0002")
    output = cut.run("rloo", "windows", "compare", "w0002", "w0002@HEAD")
    assert "13 of 13 stages have the same bytes in w0002 and w0002@HEAD" in output
    assert "git knows no revision" in cut.fail("rloo", "windows", "compare", "w0002", "w0002@nonsense")


def test_a_changed_evaluation_goes_through_all_windows_and_keeps_the_training(cut):
    starts, training = cut.starts(), {s: o for s, o in hashes(cut).items() if s.startswith(("rollout", "update"))}
    cut.change("evaluate.samples_per_prompt", 2)
    output = cut.run("rloo", "train")
    assert "w0001 (i0001 to i0002) is brought up to date: params.yaml: evaluate" in output
    assert {stage.split()[0] for stage in cut.computed_since(starts)} == {
        "evaluate",
        "judge",
        "history",
        "window_entry",
    }
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
        if out["path"].startswith(("data/policies", "data/optimizer")):
            remove(cut, out["path"], out["md5"])
    listed = next(line for line in cut.run("rloo", "windows").splitlines() if "w0001" in line)
    assert re.search(r" 1 of 2 *$", listed)
    output = cut.run("rloo", "windows", "open", "w0001")
    assert "are not in DVC's cache" in output
    assert "data/policies/i0001" in output
    with cut.warm():
        cut.run("dvc", "repro")
    assert cut.lock()["update@i0001"] == whole.lock()["update@i0001"]
    cut.run("rloo", "train")
    assert hashes(cut) == hashes(whole)
