"""Code and params that are edited while a stage runs: dvc.lock never claims other ones than were used."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from dvc.repo import Repo

from pipeline.claims import EditedError, claims_of, load_yaml
from tests.pipeline.test_crash import journal, wait_for
from tests.workspace import ROOT

STAGE = "prepare_model"
CODE = "stages/prepare/checkpoint/__init__.py"


@pytest.fixture(scope="module")
def workspace(new_workspace):
    made = new_workspace()
    made.plan(1)
    made.run("dvc", "repro", "prepare_sources")
    return made


def running(workspace, target=STAGE):
    """`dvc repro` of a stage that is at work."""
    before = journal(workspace, target.replace("_", " "))[0]
    process = subprocess.Popen(
        workspace.command("dvc", "repro", "--single-item", "--force", target),
        cwd=workspace.folder,
        env=workspace.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if not wait_for(lambda: journal(workspace, target.replace("_", " "))[0] not in (None, before), process):
        pytest.fail(process.communicate()[0])
    return process


def claimed(workspace, stage):
    return load_yaml((workspace.folder / "dvc.lock").read_text())["stages"].get(stage)


def append(workspace, file, text):
    path = workspace.folder / file
    path.write_text(path.read_text() + text)


def test_what_a_stage_takes_for_itself_is_what_dvc_writes(reference, monkeypatch):
    monkeypatch.chdir(reference.folder)
    for name, entry in load_yaml((reference.folder / "dvc.lock").read_text())["stages"].items():
        found = claims_of(name)
        code = {dep["path"]: dep["md5"] for dep in entry.get("deps", []) if dep["path"].startswith("stages/")}
        assert found.deps == code, name
        assert found.params == entry.get("params", {}), name


@pytest.mark.parametrize("change", ["code", "code and back", "params"])
def test_what_a_stage_depends_on_is_edited_while_it_runs(workspace, change):
    process = running(workspace)
    before = (workspace.folder / CODE).read_text()
    if change == "params":
        workspace.change("prepare.model.chat_template", None)  # what it is without being there
    else:
        append(workspace, CODE, f"# edited {time.time()}\n")
    if change == "code and back":
        (workspace.folder / CODE).write_text(before)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert re.search(rf"edited while {STAGE} ran: .*(checkpoint/__init__.py|prepare.model of params.yaml)", output)
    assert claimed(workspace, STAGE) is None
    assert journal(workspace, "prepare model")[1][-1] == "failed"


def test_a_folder_of_code_has_the_hash_that_dvc_gives_it(tmp_path, monkeypatch):
    """Names that sort otherwise by their parts, and what .dvcignore hides."""
    monkeypatch.chdir(tmp_path)
    Repo.init(no_scm=True).close()
    shutil.copyfile(ROOT / ".dvcignore", ".dvcignore")
    files = ("params.md", "params/x.py", "params-old.py", ".x.tmp", "run.py~", ".run.py.swp", "a/__pycache__/x.pyc")
    for name in files:
        path = Path("stages/common", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    Path("dvc.yaml").write_text("stages:\n  one:\n    cmd: echo\n    deps: [stages/common]\n")
    found = []
    for more in ("", "*.md\n"):  # a process that lasts sees what was added
        with Path(".dvcignore").open("a") as ignored:
            ignored.write(more)
        with Repo() as repo:
            repo.reproduce()
        (dep,) = load_yaml(Path("dvc.lock").read_text())["stages"]["one"]["deps"]
        assert claims_of("one").deps == {"stages/common": dep["md5"]}
        found.append(dep["md5"])
    assert found[0] != found[1]


def test_what_it_does_not_depend_on_may_be_edited(workspace):
    process = running(workspace)
    workspace.change("evaluate.temperature", 0.9)
    append(workspace, "stages/rollout/__init__.py", "# edited\n")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert claimed(workspace, STAGE)


def test_an_edit_at_the_very_end_is_found_by_the_next_command(workspace):
    """Between the end of the stage's process and DVC's reading of its code."""
    process = running(workspace)
    used = workspace.folder / "data" / ".cache" / "used.json"
    assert wait_for(used.exists, process)
    append(workspace, CODE, "# edited at the very end\n")
    process.communicate(timeout=120)
    assert process.returncode == 0
    told = subprocess.run(
        workspace.command("rloo", "heal"),
        cwd=workspace.folder,
        env=workspace.environment,
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert f"edited at the moment when {STAGE} ended: stages/prepare/checkpoint" in told
    assert claimed(workspace, STAGE) is None
    before = workspace.starts()
    workspace.run("dvc", "repro", "--single-item", STAGE)  # and the run cache does not bring it back
    assert "prepare model" in workspace.computed_since(before)
    assert "nothing to put right" in workspace.run("rloo", "heal")


def test_a_dvc_yaml_that_lost_the_stage_is_told_so(tmp_path):
    file = tmp_path / "dvc.yaml"
    for text in ("stages: {}", "stages: [", ""):
        file.write_text(text)
        with pytest.raises(EditedError, match=r"dvc\.yaml was edited"):
            claims_of("rollout@i0001", file)


def test_times_far_off_change_nothing(workspace):
    """Clocks that were set forward or back: files of the next century, and of the last."""
    workspace.run("dvc", "repro", "--single-item", STAGE)
    before = workspace.starts()
    for moment in ("2121-01-01", "1999-01-01"):
        for folder in ("stages", "data", "params.yaml", "dvc.lock"):
            subprocess.run(
                ["find", str(workspace.folder / folder), "-type", "f", "-exec", "touch", "-d", moment, "{}", "+"],
                check=True,
            )
        workspace.run("rloo", "heal")
        assert "didn't change, skipping" in workspace.run("dvc", "repro", "--single-item", STAGE)
    assert workspace.computed_since(before) == set()
