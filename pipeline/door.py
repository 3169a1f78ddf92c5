"""The DVC door: running one stage of dvc.yaml in this process, and saying whether it was computed or found."""

import os
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Literal

from dvc.exceptions import DvcException
from dvc.repo import Repo
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.dvc_files import keep_lock
from pipeline.dvc_fs import WholeFiles
from pipeline.dvc_quiet import quiet
from pipeline.dvc_yaml import remember_texts
from pipeline.used import check_used
from stages.common.errors import StageError
from stages.common.journal import read_journal, run_of

ALWAYS_RUN = "prepare_sources"  # `always_changed` in dvc.yaml: that it is computed says nothing

Outcome = Literal["computed", "restored", "unchanged"]


class StageFailedError(StageError):
    """A stage of the DAG that did not come through; the message holds the stage's own reason."""


@dataclass(frozen=True)
class StageId:
    """`rollout@i0003`, `evaluate_offline@dpo`, `history` or `prepare_model` in dvc.yaml: a room and a name."""

    dvc_name: str
    stage: str
    name: str


def stage_id(dvc_name: str, last: str) -> StageId:
    """What a DVC stage name stands for; `last` is the plan's last iteration."""
    if dvc_name == "history":
        return StageId(dvc_name, "history", last)
    if "@" in dvc_name:
        stage, _, name = dvc_name.replace("_offline@", "@").partition("@")
    else:
        stage, _, name = dvc_name.partition("_")
    return StageId(dvc_name, stage, name)


def use_this_python() -> None:
    """Let `python` in dvc.yaml be the interpreter that runs now, whether or not its environment is activated."""
    folder = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != folder:
        os.environ["PATH"] = folder + os.pathsep + os.environ.get("PATH", "")


def open_repo(stage: str | None = None) -> Repo:
    """The workspace's DVC repository, with lock files that are whole at any moment.

    `stage` is the only one of which DVC reads and writes the entry in dvc.lock; None if it needs others.

    Where another command of DVC has its lock (`dvc push`, `dvc status`), it is waited for: a stage that has been
    computed must not be lost because DVC could not write down that it was.
    """
    remember_texts()
    files = WholeFiles()
    files.stage = stage
    repo = Repo(fs=files, _wait_for_lock=True)
    jobs = repo.config["core"].get("checksum_jobs")
    if jobs:  # as DVC does with a file system of its own
        files.hash_jobs = jobs
    return repo


def reproduce(stage: StageId) -> Outcome:
    """Bring one stage up to date, as `dvc repro --single-item` does."""
    before = run_of(stage.stage, stage.name)
    quiet()
    try:
        with redirect_stdout(StringIO()), open_repo(stage.dvc_name) as repo:
            changed = repo.reproduce(stage.dvc_name, single_item=True)
        check_used()
    except DvcException as error:
        own = run_of(stage.stage, stage.name) != before
        raise StageFailedError(f"{stage.dvc_name}: {reason(stage, error, own)}") from error
    finally:
        forget_memory_files()
    keep_lock()
    if not changed:
        return "unchanged"
    return "computed" if run_of(stage.stage, stage.name) != before else "restored"


def forget_memory_files() -> None:
    """DVC writes the list of each folder that it hashes into memory, and fsspec keeps that for as long as the process
    lasts, and a file system for each thread: half a megabyte an iteration.
    """
    MemoryFileSystem.store.clear()
    MemoryFileSystem.clear_instance_cache()


def reason(stage: StageId, error: BaseException, started: bool) -> str:
    """Why a stage failed: its own last word if it got as far as starting, otherwise DVC's."""
    records = read_journal(stage.stage, stage.name)
    if started and records and records[-1]["event"] == "failed":
        return str(records[-1]["error"])
    causes = [str(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        causes.append(str(error))
    return ": ".join(dict.fromkeys(causes))


def check_project() -> None:
    """Refuse early and clearly outside a project folder or repository."""
    for needed in ("dvc.yaml", "params.yaml", ".dvc"):
        if not Path(needed).exists():
            raise StageError(f"no {needed} here; run `rloo` from the project's folder")
