"""Which code a function is: it changes with the code that it may use, and with nothing else."""

import sys
import time
from importlib.metadata import version
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from stages.common.code_identity import CodeError, code_identity
from stages.common.distributions import version_behind, versions_behind


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


def test_a_module_of_python_is_its_version():
    assert code_identity("operator:add")["version"].startswith("Python 3.")


FILES = {
    "mine/rewards.py": "def f():\n    import deep.inner.one\n    from shared import helper\n    import numpy as np",
    "mine/random.py": "x = 1",
    "mine/deep/inner/one.py": "import ring_a",  # namespaces: no __init__.py
    "mine/notes.py": "",
    "shared/__init__.py": "",
    "shared/helper.py": "from . import beside\nfrom .sub.below import x",
    "shared/beside.py": "",
    "shared/sub/__init__.py": "",
    "shared/sub/below.py": "from ..late import x\nfrom ...... import too_far",
    "shared/late.py": "def broken(:",
    "shared/never.py": "",
    "ring_a.py": "import ring_b",
    "ring_b.py": "import ring_a\nimport elsewhere, lone, no_such_module",
    "../other/elsewhere/__init__.py": "",
    "../other/elsewhere/part.py": "",
    "../other/elsewhere/.hidden/x.py": "",
    "../other/lone.py": "import further",
    "../other/further.py": "",
    "../other/unused.py": "",
    "unused.py": "",
}
NOT_TAKEN = {"shared/never.py", "unused.py", "../other/unused.py", "../other/elsewhere/.hidden/x.py"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder of rewards, another package of the project, and modules that PYTHONPATH names."""
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "stages").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.mark.parametrize("name", FILES)
def test_what_is_imported_counts_wherever_it_lies_outside_the_packages(project, name):
    first = code_identity("mine/rewards.py:f")
    assert code_identity("mine/rewards.py:f") == first
    assert first["packages"].startswith("numpy==")
    (project / name).write_text(FILES[name] + "\n# changed")
    assert (code_identity("mine/rewards.py:f") != first) == (name not in NOT_TAKEN)


@pytest.mark.parametrize("spec", ["elsewhere:f", "elsewhere.part:f", "lone:f", "shared.helper:f"])
def test_a_module_outside_the_packages_is_its_content(project, spec):
    first = code_identity(spec)
    assert "sha256" in first
    used = {"elsewhere": "../other/elsewhere/part.py", "lone": "../other/further.py", "shared": "shared/never.py"}
    (project / used[first["code"]]).write_text("x = 2")
    assert code_identity(spec) != first


def test_a_package_that_is_installed_as_editable_is_its_content(project, monkeypatch):
    """A finder knows where it is, and no folder of the path does."""

    class Finder:
        def find_spec(self, name, *_):
            folder = project.parent / "far" / "edited"
            init = folder / "__init__.py"
            return (
                spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
                if name == "edited"
                else None
            )

    (project.parent / "far/edited").mkdir(parents=True)
    (project.parent / "far/edited/__init__.py").touch()
    monkeypatch.setattr("sys.meta_path", [*sys.meta_path, Finder()])
    (project / "mine/notes.py").write_text("")
    (project / "mine/rewards.py").write_text("import edited")
    found = [code_identity(spec) for spec in ("edited:f", "mine/rewards.py:f")]
    (project.parent / "far/edited/more.py").write_text("x = 1")
    for spec, first in zip(("edited:f", "mine/rewards.py:f"), found, strict=True):
        assert code_identity(spec)["sha256"] != first["sha256"]


def test_it_is_the_same_from_a_folder_of_links(project, monkeypatch):
    there = [code_identity(spec) for spec in ("mine/rewards.py:f", "shared.helper:f")]
    links = project.parent / "links"
    links.mkdir()
    for source in project.iterdir():
        (links / source.name).symlink_to(source)
    monkeypatch.chdir(links)
    monkeypatch.setattr("sys.path", [str(links), *sys.path])
    assert [code_identity(spec) for spec in ("mine/rewards.py:f", "shared.helper:f")] == there


def test_another_version_of_what_is_imported_is_another_code(project, monkeypatch):
    first = code_identity("mine/rewards.py:f")
    monkeypatch.setattr("stages.common.code_identity.versions_behind", lambda top: (f"{top}==0.0.1",))
    assert code_identity("mine/rewards.py:f")["packages"] == "numpy==0.0.1" != first["packages"]


def test_distributions_are_found_by_the_modules_that_they_bring():
    assert versions_behind("numpy")[0].startswith("numpy==")
    assert version_behind("yaml") == version("PyYAML")
    assert versions_behind("no_such_module_here") == ()
    assert set(versions_behind("jinja2")) == {f"Jinja2=={version('jinja2')}", f"MarkupSafe=={version('markupsafe')}"}


def test_of_the_stages_it_is_the_room_and_what_the_module_imports():
    assert code_identity("stages.score.constraints:reward").keys() == {"code", "sha256"}
    found = code_identity("stages.score.math_answer:math_answer")
    assert found["code"] == "stages.score"
    assert any(text in found["packages"] for text in ("math-verify==", "sympy=="))


def test_it_takes_milliseconds(project):
    code_identity("mine/rewards.py:f")
    start = time.perf_counter()
    for _ in range(10):
        code_identity("mine/rewards.py:f")
    assert time.perf_counter() - start < 0.2


@pytest.mark.parametrize(
    ("spec", "message"),
    [("nowhere/rewards.py:f", "nowhere/rewards.py: no such file"), ("no_such_module_here:f", "no module")],
)
def test_missing_code_is_named(spec, message):
    with pytest.raises(CodeError, match=message):
        code_identity(spec)
