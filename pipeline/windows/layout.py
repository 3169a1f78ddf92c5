"""Which windows a run has: those that were begun keep their range, the others follow in the size that is asked for."""

from dataclasses import replace

from pipeline.dvc_files import LOCK
from pipeline.lock_text import Lock
from pipeline.plan import Plan, read_plan
from pipeline.windows.files import saved_lock, saved_plan
from pipeline.windows.lock import read_lock, stages_of
from stages.common.errors import StageError
from stages.common.paths import iteration_name, iteration_number


def windows(opened: Plan) -> list[Plan]:
    """All windows of the run that the open one belongs to, in order, each with the run's number of iterations."""
    plan = _at(Plan(opened.iterations, opened.evaluate_every, opened.following or opened.size), opened)
    found = [plan]
    while not plan.is_last:
        plan = _at(replace(plan, following=opened.following or opened.size).next, opened)
        found.append(plan)
    if opened.first <= opened.iterations and opened not in found:
        raise StageError(
            f"pipeline/windows does not lead up to {opened.window}, which begins at {opened.names[0]}: "
            f"restore the folder with git, or begin with the first window: `rloo plan {opened.iterations}`"
        )
    return found


def _at(planned: Plan, opened: Plan) -> Plan:
    """The window in this place: the open one, the one that was saved under its name, or as it is planned."""
    if planned.number == opened.number and planned.first == opened.first:
        return opened
    path = saved_plan(planned.window)
    if path.exists():
        saved = read_plan(path)
        if saved.first == planned.first:  # else it is of a run with other windows
            return replace(planned, size=saved.size)
    return planned


def all_windows() -> list[Plan]:
    return windows(read_plan())


def window_of(name: str) -> Plan:
    """The window that has the iteration; a StageError if the run has no such iteration."""
    number, opened = iteration_number(name), read_plan()
    for plan in windows(opened):
        if number in plan.numbers:
            return plan
    raise StageError(
        f"{name} is no iteration of pipeline/plan.yaml, which has i0001 to {iteration_name(opened.iterations)}"
    )


def find(name: str) -> Plan:
    """The window `w0003`, or that of the iteration `i0047`."""
    if not name.startswith("w"):
        return window_of(name)
    found = {plan.window: plan for plan in all_windows()}
    if name not in found:
        raise StageError(f"no window {name!r}: the run has {', '.join(list(found)[:1] + list(found)[-1:])}")
    return found[name]


def lock_of(plan: Plan, opened: Plan) -> Lock:
    """The lock that the window has now: the project's if it is open, else the saved one."""
    if plan.number == opened.number:
        return read_lock(LOCK)
    return read_lock(saved_lock(plan.window)) if belongs(plan) else {}


def belongs(plan: Plan) -> bool:
    """Whether what is saved under the window's name is of this window."""
    path = saved_plan(plan.window)
    return path.exists() and read_plan(path).first == plan.first


def begun(plan: Plan, lock: Lock) -> bool:
    """Whether a stage of one of the window's iterations has been run."""
    return bool({stage for stage in stages_of(plan) if not stage.startswith(("window_entry@", "history"))} & set(lock))
