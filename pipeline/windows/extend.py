"""The length of a run: longer, shorter, or in windows of another size. What is done stays where it is."""

from dataclasses import replace

from pipeline.plan import PLAN_FILE, Plan, make_plan, read_plan, write_plan
from pipeline.windows.layout import begun, lock_of, windows
from pipeline.windows.lock import read_lock
from pipeline.windows.switch import as_opened, join_locks, saved_entries, settle, switch, take_apart
from stages.common.errors import StageError
from stages.common.paths import iteration_name

FEW = 6  # windows that are spelt out


def set_run(iterations: int, evaluate_every: int, size: int) -> Plan:
    """Write the plan of a run of `iterations` in all; the window that is open then.

    `size` is that of windows that are not begun. The open window stays open, unless the run now ends before it.
    """
    asked = make_plan(iterations, evaluate_every, size)
    opened = readable()
    if opened is None:
        return start(asked)
    wanted = replace(opened, iterations=iterations, evaluate_every=evaluate_every)
    if begun(opened, read_lock()):
        wanted = replace(wanted, following=None if size == opened.size else size)
    else:
        wanted = replace(wanted, size=size, following=None)
    if wanted.first > iterations:
        last = windows(wanted)[-1]
        switch(opened, as_opened(last, wanted))
        return read_plan()
    write_plan(wanted)
    settle(wanted)
    return wanted


def readable() -> Plan | None:
    """The open window; None if there is no plan, or one that cannot be gone on with."""
    try:
        plan = read_plan()
        windows(plan)
    except StageError:
        return None
    return plan


def last_begun(plan: Plan) -> int:
    """The number of the last iteration of the run that any stage has been run for; 0 if there is none."""
    stages = {stage for one in windows(plan) for stage in lock_of(one, plan)}
    numbers = {number for number in range(1, plan.iterations + 1) if f"rollout@{iteration_name(number)}" in stages}
    return max(numbers, default=0)


def describe(plan: Plan, begun_before: int) -> str:
    """What the run is now, and what is no longer part of it; `begun_before`: of the run as it was."""
    count = f"{plan.iterations} iteration{'s' if plan.iterations > 1 else ''}"
    found = windows(plan)
    whole = [name for one in found for name in one.evaluated if len(found) < FEW or name in plan.evaluated]
    told = [f"{count}, evaluated: {', '.join(dict.fromkeys(whole))}"]
    if len(found) > 1:
        of_open = f" (of {plan.window}, which is open)" if len(found) >= FEW else ""
        told = [f"{told[0]}{of_open}", f"{len(found)} windows, of which {plan.window} is open: {spans(found)}"]
    if begun_before > plan.iterations:
        gone = f"{iteration_name(plan.iterations + 1)} to {iteration_name(begun_before)}"
        told.append(
            f"not part of the run any more: {gone}; what was made of them stays in DVC's cache, and "
            f"`rloo plan {begun_before}` takes it up again"
        )
    return "\n".join(told)


def spans(found: list[Plan]) -> str:
    """`w0001 i0001 to i0020, ...`: the first and the last of many."""
    shown = [f"{plan.window} {plan.names[0]} to {plan.last}" for plan in found]
    return ", ".join(shown if len(shown) < FEW else [shown[0], "...", shown[-1]])


def start(asked: Plan) -> Plan:
    """Begin with the first window: as it was saved, if it was."""
    plan = as_opened(windows(asked)[0], asked)
    saved = saved_entries(plan)
    join_locks(saved)
    write_plan(plan, PLAN_FILE)
    if saved:
        take_apart(saved)
    settle(plan)
    return plan
