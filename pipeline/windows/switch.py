"""Which window is open: `pipeline/plan.yaml` decides, and is replaced by rename.

Before, dvc.lock gets the entries of both windows, as DVC leaves alone those that it does not know; after, those of the
other are taken out. So whenever this is cut off, one of the two windows is open with all that it has, and the next
`dvc repro` or `rloo train` goes on with it.
"""

from collections.abc import Callable
from dataclasses import replace

from pipeline.lock_text import Lock
from pipeline.plan import PLAN_FILE, Plan, write_plan
from pipeline.windows.close import set_aside
from pipeline.windows.files import saved_lock
from pipeline.windows.ignore import hide_nothing, hide_others
from pipeline.windows.layout import belongs
from pipeline.windows.lock import of_the_run, of_windows, read_lock, trimmed, write_lock


def as_opened(target: Plan, opened: Plan) -> Plan:
    """The plan of a window once it is open: it also holds the size of the windows that are not begun yet."""
    size = opened.following or opened.size
    return replace(target, following=None if size == target.size else size)


def switch(opened: Plan, target: Plan) -> None:
    """Open another window: plan and lock. Files are checked out by whoever needs them, or made by the stages."""
    for step in steps(opened, target):
        step()


def steps(opened: Plan, target: Plan) -> list[Callable[[], None]]:
    """What a switch does, one after the other; it may be cut off after any of them."""
    saved, plan = saved_entries(target), as_opened(target, opened)
    return [
        lambda: set_aside(opened),
        lambda: join_locks(saved),
        hide_nothing,
        lambda: write_plan(plan, PLAN_FILE),  # from here on the other window is open
        lambda: take_apart(saved),
        lambda: settle(plan),
    ]


def saved_entries(plan: Plan) -> Lock:
    """What the window's own stages were when it was open last."""
    return of_windows(read_lock(saved_lock(plan.window))) if belongs(plan) else {}


def join_locks(saved: Lock) -> None:
    """Both windows' entries; of `history`, which each has, that of the one that is open."""
    write_lock({**saved, **read_lock()})


def take_apart(saved: Lock) -> None:
    """The run's entries, and those of the window that was saved."""
    write_lock({**of_the_run(read_lock()), **saved})


def settle(plan: Plan) -> None:
    """Make lock and `data/.dvcignore` fit the plan that is open, whatever was cut off before.

    An entry that is only in the window's folder is taken from there: DVC compares it with what there is.
    """
    lock, saved = trimmed(read_lock(), plan), trimmed(saved_entries(plan), plan)
    write_lock({**lock, **{stage: lines for stage, lines in saved.items() if stage not in lock}})
    hide_others(plan)
