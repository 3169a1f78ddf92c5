"""The plan: which iterations are evaluated, and that extending a plan keeps what is in it."""

import pytest
import yaml

from pipeline.plan import Plan, make_plan, read_plan, write_plan
from stages.common.errors import StageError


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "plan.yaml"


@pytest.mark.parametrize(
    ("iterations", "every", "evaluated"),
    [
        (1, 1, [0, 1]),
        (1, 5, [0, 1]),
        (4, 1, [0, 1, 2, 3, 4]),
        (4, 2, [0, 2, 4]),
        (5, 2, [0, 2, 4, 5]),
        (6, 3, [0, 3, 6]),
        (7, 3, [0, 3, 6, 7]),
        (12, 100, [0, 12]),
    ],
)
def test_first_last_and_every_nth_are_evaluated(iterations, every, evaluated):
    assert make_plan(iterations, every).evaluated == [f"i{number:04d}" for number in evaluated]


@pytest.mark.parametrize("iterations", [1, 3, 12])
def test_names_are_the_iterations_after_the_initial_policy(iterations):
    plan = make_plan(iterations, 2)
    assert plan.names == [f"i{number:04d}" for number in range(1, iterations + 1)]
    assert plan.last == plan.names[-1]


def test_each_iteration_names_the_one_before_it():
    assert make_plan(3, 1).as_vars()["iterations"] == {
        "i0001": {"previous": "i0000"},
        "i0002": {"previous": "i0001"},
        "i0003": {"previous": "i0002"},
    }


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("i0000", ["evaluate@i0000"]),
        ("i0001", ["rollout@i0001", "score@i0001", "advantage@i0001", "update@i0001"]),
        (
            "i0002",
            [
                "rollout@i0002",
                "score@i0002",
                "advantage@i0002",
                "diagnose@i0002",
                "update@i0002",
                "evaluate@i0002",
                "judge@i0002",
            ],
        ),
    ],
)
def test_stages_of_an_iteration(name, stages):
    assert make_plan(3, 2).stages_of(name) == stages


@pytest.mark.parametrize(("iterations", "every"), [(1, 1), (7, 3), (20, 5), (3, 9)])
def test_what_is_written_is_read(path, iterations, every):
    write_plan(make_plan(iterations, every), path)
    assert read_plan(path) == Plan(iterations, every)
    assert yaml.safe_load(path.read_text()) == make_plan(iterations, every).as_vars()
    assert path.read_text().startswith("# Written by `rloo plan`")


def test_writing_the_same_plan_again_leaves_the_file_alone(path):
    write_plan(make_plan(3, 1), path)
    before = path.stat()
    write_plan(make_plan(3, 1), path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    write_plan(make_plan(4, 1), path)
    assert read_plan(path).iterations == 4


def training(plan, name):
    return [stage for stage in plan.stages_of(name) if not stage.startswith(("diagnose", "evaluate", "judge"))]


@pytest.mark.parametrize(("before", "after"), [((3, 2), (8, 2)), ((4, 2), (5, 2)), ((1, 1), (20, 7))])
def test_extending_keeps_the_earlier_entries(before, after):
    old, new = make_plan(*before), make_plan(*after)
    assert list(new.as_vars()["iterations"].items())[: before[0]] == list(old.as_vars()["iterations"].items())
    for name in old.names:
        assert training(new, name) == training(old, name) != []


@pytest.mark.parametrize(("iterations", "every"), [(0, 1), (-1, 1), (1, 0), (3, -2)])
def test_bad_numbers_are_refused(iterations, every):
    with pytest.raises(StageError, match=f"at least one iteration.* {iterations}, {every}"):
        make_plan(iterations, every)


@pytest.mark.parametrize(
    "edit",
    [
        lambda v: v["iterations"].pop("i0002"),
        lambda v: v["iterations"]["i0002"].update(previous="i0000"),
        lambda v: v["iterations"].update(i0004={"previous": "i0003"}),
        lambda v: v["evaluated"].remove("i0002"),
        lambda v: v["evaluated"].append("i0001"),
        lambda v: v.update(evaluate_every=1),
        lambda v: v.update(evaluate_every=2.5),
        lambda v: v.update(last="i0002"),
        lambda v: v.update(note="by hand"),
        lambda v: v.pop("evaluated"),
    ],
)
def test_hand_edited_plan_is_refused_with_the_remedy(path, edit):
    values = make_plan(3, 2).as_vars()
    edit(values)
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(StageError, match=r"plan\.yaml: edited by hand.*rloo plan \d+` rewrites it"):
        read_plan(path)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "a: [", "last: i0003", "evaluate_every: 2", "last: 3\nevaluate_every: 1"]
)
def test_what_is_no_plan_is_refused_with_the_remedy(path, text):
    path.write_text(text)
    with pytest.raises(StageError, match=r"plan\.yaml: not a plan .*rloo plan 12"):
        read_plan(path)


@pytest.mark.parametrize(
    "text", ["last: i0003\nevaluate_every: often", "last: i0000\nevaluate_every: 1", "last: x\nevaluate_every: 1"]
)
def test_wrong_values_are_refused_with_the_file(path, text):
    path.write_text(text)
    with pytest.raises(StageError) as error:
        read_plan(path)
    assert "plan.yaml" in str(error.value)


def test_missing_plan_is_refused_with_the_remedy(path):
    with pytest.raises(StageError, match=r"plan\.yaml does not exist; `rloo plan 12` writes"):
        read_plan(path)


def test_the_title_names_the_window_where_there_are_several():
    assert make_plan(5, 2, 2).next.title == "w0002 of w0003, i0003 to i0004"
    assert make_plan(5, 2).title == "i0001 to i0005"
