"""What windows are kept in: folders that are whole, hashes as DVC has them, reasons why a window is outdated."""

import json

import pytest
import yaml
from dvc.repo import Repo

from pipeline.lock_text import HEADER, split
from pipeline.plan import Plan
from pipeline.windows import made_of
from pipeline.windows.close import entry_files
from pipeline.windows.files import content_md5, replace_folder, replace_text
from stages.common import paths
from tests.workspace import ROOT


def test_the_end_of_a_window_is_what_the_next_one_starts_from():
    outs = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["window_entry"]["do"]["outs"]
    assert set(entry_files("i0003")) == {out.replace("${key}", "i0003") for out in outs}


def test_hashes_are_those_of_dvc(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Repo.init(no_scm=True).close()
    for name, text in {"b/two": "2", "a": "1", "b/one": "ä"}.items():
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_text(text)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"\x00" * 100)
    with Repo() as repo:
        for name in ("folder", "empty", "file"):
            (stage,) = repo.add(name)
            assert content_md5(tmp_path / name) == stage.outs[0].hash_info.value


def test_files_and_folders_are_replaced_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    replace_text(tmp_path / "a", "1")
    replace_text(tmp_path / "a", "2")
    for content in ({"x": "1", "y": "2"}, {"x": "3"}):
        replace_folder(tmp_path / "w/w0001", content)
        assert {p.name: p.read_text() for p in (tmp_path / "w/w0001").iterdir()} == content
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "w", "w0001", "x"]


@pytest.fixture
def window(tmp_path, monkeypatch):
    """w0002, closed under the facts {"code": "1"}."""
    monkeypatch.chdir(tmp_path)
    plan = Plan(6, 2, 2, number=2, first=3)
    lock = split(
        HEADER + "  rollout@i0003:\n    cmd: a\n  history:\n    cmd: b\n  prepare_model:\n    cmd: c\n", tmp_path
    )
    folders = {"w0001": {"end.json": "{}"}, "w0002": {"end.json": "{}"}}
    for name, content in folders.items():
        replace_folder(paths.WINDOWS / name, content)
    found = {
        "made_of": made_of.of_window(plan, {"code": "1"}),
        "lock": made_of.own_entries(lock),
        "end": made_of.digest("{}"),
    }
    replace_folder(paths.WINDOWS / "w0002", {"end.json": "{}", "made_of.json": json.dumps(found)})
    return plan, lock


def test_a_window_is_up_to_date_while_all_is_as_it_was(window):
    plan, lock = window
    assert made_of.reasons(plan, lock, {"code": "1"}) == []
    assert made_of.reasons(plan, {**lock, "prepare_model": "of the run"}, {"code": "1"}) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda plan, lock: (plan, lock, {"code": "2"}), ["code"]),
        (lambda plan, lock: (plan, lock, {"code": "1", "more": "1"}), ["more"]),
        (lambda plan, lock: (plan, {**lock, "history": "x"}, {"code": "1"}), ["its stages have been run since"]),
        (lambda plan, lock: (Plan(6, 1, 2, 2, 3), lock, {"code": "1"}), ["evaluated"]),
        (lambda plan, lock: (Plan(3, 2, 2, 2, 3), lock, {"code": "1"}), ["iterations", "evaluated"]),
        (lambda plan, lock: (Plan(6, 2, 2, 3, 5), lock, {"code": "1"}), ["not finished"]),
    ],
)
def test_what_is_not_as_it_was_is_named(window, change, expected):
    plan, lock, facts = change(*window)
    assert made_of.reasons(plan, lock, facts) == expected


def test_the_end_of_the_window_before_and_its_own_are_watched(window):
    plan, lock = window
    (paths.WINDOWS / "w0001/end.json").write_text('{"a": 1}')
    assert made_of.reasons(plan, lock, {"code": "1"}) == ["the window before"]
    (paths.WINDOWS / "w0001/end.json").write_text("{}")
    (paths.WINDOWS / "w0002/end.json").write_text("{ }")
    assert made_of.reasons(plan, lock, {"code": "1"}) == ["pipeline/windows/w0002/end.json is not what was written"]
    (paths.WINDOWS / "w0002/made_of.json").write_text("{")
    assert made_of.reasons(plan, lock, {"code": "1"}) == ["pipeline/windows/w0002/made_of.json cannot be read"]
