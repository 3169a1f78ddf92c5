"""Which code a function is: it changes with the code that it may use, and with nothing else."""

from pathlib import Path

import pytest

from stages.common.code_identity import CodeError, code_identity


def test_a_file_is_itself_and_the_python_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/rewards.py").write_text("def f(): ...")
    first = code_identity("mine/rewards.py:f")
    assert first["code"] == "mine/rewards.py"
    Path("mine/notes.txt").write_text("nothing")
    assert code_identity("mine/rewards.py:g") == first
    Path("mine/helper.py").write_text("x = 1")
    assert code_identity("mine/rewards.py:f") != first


def test_a_module_of_the_project_is_its_top_level_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = Path("own_rewards_of_a_test")
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inner" / "one.py").write_text("x = 1")
    spec = f"{package}.inner.one:f"
    first = code_identity(spec)
    (package / "inner" / "one.py").write_text("x = 2")
    assert code_identity(spec)["code"] == str(package)
    assert code_identity(spec) != first


def test_a_module_is_the_projects_also_where_the_folder_is_made_of_links(tmp_path, monkeypatch):
    project, other = tmp_path / "project", tmp_path / "other"
    (project / "stages").mkdir(parents=True)
    (project / "own_rewards_of_links.py").write_text("x = 1")
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.chdir(project)
    there = code_identity("own_rewards_of_links:f")
    other.mkdir()
    (other / "stages").symlink_to(project / "stages")
    monkeypatch.chdir(other)
    assert code_identity("own_rewards_of_links:f") == there
    assert "sha256" in there


def test_an_installed_module_is_its_version():
    assert code_identity("numpy:mean").keys() == {"code", "version"}


def test_of_the_stages_a_room_is_enough():
    assert code_identity("stages.score.constraints:reward")["code"] == "stages.score"


@pytest.mark.parametrize(
    ("spec", "message"),
    [("nowhere/rewards.py:f", "nowhere/rewards.py: no such file"), ("no_such_module_here:f", "no module")],
)
def test_missing_code_is_named(spec, message):
    with pytest.raises(CodeError, match=message):
        code_identity(spec)
