"""Putting the files of the open window into place, out of DVC's cache."""

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from dvc.exceptions import CheckoutError, DvcException
from dvc.repo import Repo

from pipeline.dvc_quiet import quiet
from pipeline.plan import Plan
from pipeline.windows.lock import read_lock, stages_of
from stages.common.errors import StageError


def check_out(plan: Plan) -> list[str]:
    """Put into `data` what the window's stages made; the paths that are not in the cache.

    Stages are named, as without names DVC takes the files of all other windows away.
    """
    own = sorted(stages_of(plan) & set(read_lock()))
    if not own:
        return []
    quiet()
    try:
        with redirect_stdout(StringIO()), Repo() as repo:
            read_once(repo)
            repo.checkout(targets=own, force=True)
    except CheckoutError as error:
        return sorted(error.target_infos)
    except DvcException as error:
        raise StageError(f"{plan.window}: files could not be checked out: {error}") from error
    return []


def by_name(repo: Repo) -> Callable[[str], Any]:
    """A stage of dvc.yaml as it is now, read once for all; a DvcException if there is none of the name."""
    stages = {stage.addressing: stage for stage in repo.index.stages}

    def find(name: str) -> Any:
        if name not in stages:
            raise DvcException(f"dvc.yaml has no stage {name}")
        return stages[name]

    return find


def read_once(repo: Repo) -> None:
    """Let `repo` find stages among those that it has read. It would read dvc.yaml and dvc.lock once more for each
    that is named: a second for each of hundreds, in a long window.
    """
    stages = by_name(repo)
    repo.stage.collect = lambda target, **_: [stages(target)]


def is_up_to_date(plan: Plan) -> bool:
    """Whether DVC would run none of the window's stages."""
    names = stages_of(plan)
    if not names <= set(read_lock()):
        return False
    quiet()
    try:
        with redirect_stdout(StringIO()), Repo() as repo, repo.lock:
            stages = by_name(repo)
            return not any(stages(name).status() for name in sorted(names))
    except DvcException as error:
        raise StageError(f"{plan.window}: DVC cannot say whether it is up to date: {error}") from error


def put_into_cache(stages: list[str]) -> None:
    """What stages that are up to date made, for a cache that has lost it."""
    quiet()
    try:
        with redirect_stdout(StringIO()), Repo() as repo:
            for stage in stages:
                repo.commit(stage, force=True)
    except DvcException as error:
        raise StageError(f"{', '.join(stages)}: cannot be put into DVC's cache: {error}") from error
