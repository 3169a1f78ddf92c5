"""Iterations of other windows than the open one: whether the files on disk are what their window's lock says."""

from collections.abc import Iterable
from pathlib import Path

from pipeline.lock_text import Lock
from pipeline.plan import PLAN_FILE, Plan, read_plan
from pipeline.windows.files import content_md5
from pipeline.windows.layout import lock_of, window_of, windows
from pipeline.windows.lock import outs
from stages.common import paths
from stages.common.errors import StageError
from stages.common.paths import INITIAL

Files = dict[str, list[Path]]  # of each stage


def tables(name: str) -> Files:
    return {
        "rollout": [paths.rollouts(name)],
        "score": [paths.scores(name)],
        "advantage": [paths.advantages(name)],
    }


def check_tables(name: str) -> None:
    """Refuse an iteration that the run does not have, or whose tables are not those of its window."""
    check_files(name, tables(name))


def check_rollouts(name: str) -> None:
    """The same of what was sampled."""
    check_files(name, {"rollout": [paths.rollouts(name)]})


def check_policy_files(name: str) -> None:
    """The same of the policy after an iteration."""
    if name != INITIAL:  # it is in every window
        check_files(name, {"update": [paths.policy(name)]})


def check_evaluation(name: str) -> None:
    """The same of what `evaluate` made."""
    if name != INITIAL:
        check_files(name, {"evaluate": [paths.generations(name), paths.evaluation(name)]})


def check_files(name: str, files: Files) -> None:
    """Of the open window nothing is checked: `dvc repro` and `rloo train` bring it up to date. Nor without a plan:
    stages that were run one by one are of no window.
    """
    if not PLAN_FILE.exists():
        return
    plan, opened = window_of(name), read_plan()
    found = None if plan.number == opened.number else problem(name, files, plan, lock_of(plan, opened))
    if found is not None:
        raise StageError(found)


def problem(name: str, files: Files, plan: Plan, lock: Lock) -> str | None:
    """What is wrong with the files of an iteration, if anything; `lock` is that of its window."""
    for stage, of_stage in files.items():
        made = outs(lock, f"{stage}@{name}")
        if not made:
            return f"{name} is of {plan.window}, which has no {stage}@{name} yet; `rloo train` runs all windows"
        for path in of_stage:
            if not path.exists() or content_md5(path) != made.get(str(path), {}).get("md5"):
                return (
                    f"{path} is not here as {plan.window} made it; `rloo windows open {name}` puts the files of that "
                    "window into place"
                )
    return None


def with_tables(names: Iterable[str]) -> list[str]:
    """Those of the open window, and those whose tables are there as their window made them."""
    opened, wanted = read_plan(), set(names)
    found: list[str] = []
    for plan in windows(opened):
        own = [name for name in plan.names if name in wanted]
        if plan.number != opened.number:
            lock = lock_of(plan, opened)
            own = [name for name in own if problem(name, tables(name), plan, lock) is None]
        found += own
    return found
