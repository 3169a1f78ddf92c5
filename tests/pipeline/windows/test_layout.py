"""Plans of several windows: ranges that stay, sizes that change, names, and runs that get longer and shorter."""

from dataclasses import replace

import pytest
import yaml

from pipeline.lock_text import HEADER
from pipeline.plan import Plan, make_plan, plan_text, read_plan, write_plan
from pipeline.windows.extend import describe, set_run
from pipeline.windows.files import replace_folder, saved_plan
from pipeline.windows.ignore import IGNORE
from pipeline.windows.layout import find, window_of, windows
from pipeline.windows.lock import LOCK, read_lock
from stages.common.errors import StageError


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline/windows").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    return tmp_path


def ranges(plan):
    return [(one.window, one.first, one.last_number) for one in windows(plan)]


def finish(plan):
    """As if the window's folder had been written."""
    replace_folder(saved_plan(plan.window).parent, {"plan.yaml": plan_text(plan), "dvc.lock": lock(*plan.names)})


def lock(*names):
    return HEADER + "".join(f"  rollout@{name}:\n    cmd: none\n" for name in ("none", *names))


@pytest.mark.parametrize(
    ("iterations", "size", "expected"),
    [
        (5, 2, [("w0001", 1, 2), ("w0002", 3, 4), ("w0003", 5, 5)]),
        (4, 2, [("w0001", 1, 2), ("w0002", 3, 4)]),
        (3, 20, [("w0001", 1, 3)]),
        (1, 1, [("w0001", 1, 1)]),
    ],
)
def test_windows_cover_the_run(iterations, size, expected):
    assert ranges(make_plan(iterations, 2, size)) == expected


def test_a_thousand_iterations_are_fifty_windows_and_each_names_where_it_starts():
    found = windows(make_plan(1000, 5))
    assert len(found) == 50
    assert [number for plan in found for number in plan.numbers] == list(range(1, 1001))
    assert found[49].entry == {"i0980": {"window": "w0049"}}
    assert [name for plan in found for name in plan.evaluated if name != "i0000"] == make_plan(
        1000, 5, 9
    ).whole.evaluated[1:]


def test_a_window_with_room_goes_on_and_a_full_one_is_followed_by_the_next():
    set_run(3, 2, 4)
    LOCK.write_text(lock("i0001", "i0002", "i0003"))
    assert ranges(set_run(6, 2, 4)) == [("w0001", 1, 4), ("w0002", 5, 6)]


def test_another_size_is_that_of_windows_that_are_not_begun():
    set_run(10, 2, 4)
    assert set_run(10, 2, 3).size == 3  # nothing is done yet
    LOCK.write_text(lock("i0001"))
    plan = set_run(10, 2, 5)
    assert (plan.size, plan.following) == (3, 5)
    assert ranges(plan) == [("w0001", 1, 3), ("w0002", 4, 8), ("w0003", 9, 10)]
    assert read_plan() == plan
    assert read_plan().following == 5
    assert set_run(10, 2, 3).following is None


def test_a_finished_window_keeps_its_range():
    finish(Plan(20, 2, 4))
    opened = Plan(20, 2, 6, number=2, first=5)
    assert ranges(opened) == [("w0001", 1, 4), ("w0002", 5, 10), ("w0003", 11, 16), ("w0004", 17, 20)]


def test_a_run_that_ends_before_the_open_window_opens_the_last_and_loses_nothing():
    finish(Plan(12, 2, 4))
    finish(replace(Plan(12, 2, 4), number=2, first=5))
    opened = Plan(12, 2, 4, number=3, first=9)
    write_plan(opened)
    LOCK.write_text(lock("i0009", "i0010"))
    plan = set_run(6, 2, 4)
    assert (plan.window, plan.names) == ("w0002", ["i0005", "i0006"])
    assert set(read_lock()) == {"rollout@none", "rollout@i0005", "rollout@i0006"}
    assert set(read_lock(saved_plan("w0003").with_name("dvc.lock"))) == {
        "rollout@none",
        "rollout@i0009",
        "rollout@i0010",
    }
    assert "not part of the run any more: i0007 to i0010" in describe(plan, 10)
    assert ranges(set_run(12, 2, 4)) == ranges(opened)


def test_iterations_and_windows_are_found_by_name():
    write_plan(make_plan(5, 2, 2))
    assert window_of("i0004").window == find("w0002").window == find("i0003").window == "w0002"
    for name in ("i0006", "i0000"):
        with pytest.raises(StageError, match=f"{name} is no iteration .* has i0001 to i0005"):
            find(name)
    with pytest.raises(StageError, match="no window 'w0009': the run has w0001, w0003"):
        find("w0009")


def test_an_open_window_that_nothing_leads_up_to_is_refused_and_a_plan_begins_anew():
    write_plan(Plan(20, 2, 5, number=2, first=4))
    with pytest.raises(StageError, match=r"does not lead up to w0002, which begins at i0004.*rloo plan 20"):
        windows(read_plan())
    assert set_run(20, 2, 5).window == "w0001"


def test_dvc_sees_the_open_window_and_the_tables_that_it_starts_from():
    set_run(6, 2, 3)
    assert "!/iterations/i0003\n" in IGNORE.read_text()
    assert "i0004" not in IGNORE.read_text()


def test_the_lock_is_trimmed_to_the_plan():
    LOCK.write_text(lock("i0001", "i0002", "i0003"))
    set_run(2, 1, 20)
    assert set(read_lock()) == {"rollout@none", "rollout@i0001", "rollout@i0002"}
    assert set(yaml.safe_load(LOCK.read_text())["stages"]) == set(read_lock())


@pytest.mark.parametrize("text", ["schema: '2.0'\nstages:\n  a:\n    cmd: x\n  b", "stages: {}\n", "x"])
def test_a_lock_that_is_cut_off_is_refused(text):
    LOCK.write_text(text)
    with pytest.raises(StageError, match=r"dvc\.lock: not a lock as DVC writes it"):
        read_lock()
