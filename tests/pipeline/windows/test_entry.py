"""What a window starts from: restored from DVC's cache by hash, checked, or refused with the remedy."""

import json
import os
import shutil
from pathlib import Path

import pytest
from dvc.repo import Repo

from pipeline.plan import Plan, write_plan
from pipeline.windows.cached import cache_folder, cached, can_start, is_cached, read_end
from pipeline.windows.close import entry_files
from pipeline.windows.entry import main, run
from pipeline.windows.files import content_md5, end_file, made_of_file
from pipeline.windows.made_of import inputs
from stages.common.errors import StageError
from tests.workspace import ROOT

PLAN = Plan(4, 2, 2, number=2, first=3)
FOLDERS = ("data/policies/i0002", "data/critics/i0002")  # the second is empty, as without a critic


@pytest.fixture
def project(tmp_path, monkeypatch):
    """w0002 is open, and all that it starts from is in the cache and nowhere else."""
    monkeypatch.chdir(tmp_path)
    Repo.init(no_scm=True).close()
    write_plan(PLAN, Path("pipeline/plan.yaml"))
    end = {}
    for path in map(Path, entry_files("i0002")):
        if str(path) in FOLDERS:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"content of {path}")
    (tmp_path / FOLDERS[0] / "weights").write_bytes(b"weights")
    with Repo() as repo:
        for path in entry_files("i0002"):
            repo.add(path)
            end[path] = {"md5": content_md5(Path(path)), "size": 1}
            os.rename(path, f"{path}.before")
    end_file("w0001").parent.mkdir(parents=True)
    end_file("w0001").write_text(json.dumps(end))
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copyfile(ROOT / name, name)
    made_of_file("w0001").write_text(json.dumps({"made_of": inputs()}))
    return end


def test_everything_is_there_again_with_its_hash(project):
    assert can_start(PLAN, {}, cache_folder())
    run("i0002")
    assert {path: content_md5(Path(path)) for path in project} == {path: out["md5"] for path, out in project.items()}
    assert Path(FOLDERS[1]).is_dir()
    assert main(["i0002"]) == 0  # again, over what is there


def test_a_flipped_byte_in_the_cache_is_noticed_and_named(project):
    file = cached(cache_folder(), project["data/iterations/i0002/history.parquet"]["md5"])
    file.chmod(0o644)
    file.write_bytes(b"X" + file.read_bytes()[1:])
    with pytest.raises(
        StageError, match=r"i0002/history\.parquet: damaged in DVC's cache: \.dvc/cache/.*other.*--repair"
    ):
        run("i0002")
    assert not Path("data/iterations/i0002/history.parquet").exists()


def test_a_list_of_a_folder_that_is_none_any_more_is_named_with_the_remedy(project, capsys):
    listing = cached(cache_folder(), project[FOLDERS[0]]["md5"])
    listing.chmod(0o644)
    listing.write_bytes(b"X" + listing.read_bytes()[1:])
    assert main(["i0002"]) == 1
    told = capsys.readouterr().err
    assert f"{listing.relative_to(Path.cwd())}: damaged, and no list of a folder any more" in told
    assert "`rloo verify --repair`" in told


def test_what_is_gone_from_the_cache_is_named_with_the_remedy(project, capsys):
    cache = cache_folder()
    listing = json.loads(cached(cache, project[FOLDERS[0]]["md5"]).read_text())
    cached(cache, listing[0]["md5"]).unlink()  # a file of the folder: its list is still there
    assert not is_cached(cache, project[FOLDERS[0]]["md5"])
    assert not can_start(PLAN, {}, cache)
    assert main(["i0002"]) == 1
    assert "names what is not in DVC's cache: data/policies/i0002. `rloo pull`" in capsys.readouterr().err


def test_a_window_made_with_other_options_of_training_is_not_gone_on_from(project, capsys):
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("estimator: rloo", "estimator: grpo"))
    assert main(["i0002"]) == 1
    assert "w0001 was made with other options or code than there are now (params.yaml: advantage)" in (
        capsys.readouterr().err
    )
    params.write_text(params.read_text().replace("estimator: grpo", "estimator: rloo").replace("2000", "200"))
    assert main(["i0002"]) == 0  # how it is evaluated is no part of it
    made_of_file("w0001").unlink()
    assert main(["i0002"]) == 1
    assert "made_of.json: cannot be read" in capsys.readouterr().err


def test_a_start_that_is_restored_already_needs_no_cache(project):
    run("i0002")
    cache = cache_folder()
    cached(cache, project["data/iterations/i0002/advantages.parquet"]["md5"]).unlink()
    lock = {"window_entry@i0002": f"md5: {content_md5(end_file('w0001'))}"}
    assert can_start(PLAN, lock, cache)
    assert not can_start(PLAN, {"window_entry@i0002": "md5: of another end"}, cache)
    Path("data/iterations/i0002/advantages.parquet").chmod(0o644)
    Path("data/iterations/i0002/advantages.parquet").write_text("other")
    assert not can_start(PLAN, lock, cache)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', '{"a": {}}'])
def test_an_end_that_is_none_is_refused(project, text):
    end_file("w0001").write_text(text)
    with pytest.raises(StageError, match=r"w0001/end\.json: not the end of a window"):
        read_end("w0001")


def test_other_iterations_and_windows_that_are_not_finished_are_refused(project):
    with pytest.raises(StageError, match="i0001 is not where w0002"):
        run("i0001")
    end_file("w0001").unlink()
    with pytest.raises(StageError, match="w0001 is not finished"):
        run("i0002")
    assert main(["nonsense"]) == 1
    assert main([]) == 2
