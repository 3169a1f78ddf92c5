"""A run of many windows: those that are up to date are passed by, each of the others is opened, run and closed."""

from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.plan import Plan, read_plan
from pipeline.storage.prune import prune
from pipeline.windows.cached import cache_folder, can_start, missing, read_end
from pipeline.windows.checkout import check_out, is_up_to_date, put_into_cache
from pipeline.windows.close import close
from pipeline.windows.files import end_file
from pipeline.windows.layout import all_windows, lock_of
from pipeline.windows.lock import read_lock
from pipeline.windows.made_of import Facts, facts_now, inputs, reasons
from pipeline.windows.switch import settle, switch
from stages.common.errors import StageError
from stages.common.params_file import load_params


def windows_to_run(tell: Callable[[str], None]) -> Iterator[Plan]:
    """Each window that is not up to date, open; when the next one is asked for, all its stages have to be.

    The last one comes in any case, at the end. Options and code are one for the whole run: if they change while it is
    under way, it goes back to the first window that they concern. `tell` hears why a finished window is opened again.
    """
    cache = cache_folder()
    settle(read_plan())
    while True:
        plan, before = open_next(cache, tell), inputs()
        yield plan
        if inputs() != before:
            continue  # some stages ran before the change, some after it: the window is gone through again
        facts = facts_now(read_lock())
        if not plan.is_last:
            close_in_cache(plan, facts, cache)
        elif next_window(facts, cache)[0].number == plan.number:
            return


def close_in_cache(plan: Plan, facts: Facts, cache: Path) -> None:
    """Close a window whose stages are up to date, and see that the next one can start from it."""
    close(plan, facts)
    if missing(cache, read_end(plan.window)):  # the files are there, and somebody has emptied the cache
        put_into_cache([f"advantage@{plan.last}", f"update@{plan.last}", "history"])


def open_next(cache: Path, tell: Callable[[str], None]) -> Plan:
    """Open the window that is to be run."""
    opened = read_plan()
    target, why = next_window(facts_now(read_lock()), cache)
    if why and end_file(target.window).exists():
        tell(f"{target.window} ({target.names[0]} to {target.last}) is brought up to date: {shortened(why)}")
    if target.number != opened.number:
        switch(opened, target)
        check_out(target)  # what is not in the cache is made by its stage
        prune_finished(tell)
    return read_plan()


def prune_finished(tell: Callable[[str], None]) -> None:
    """Remove checkpoints of finished windows, as `storage` in params.yaml says; what hinders it does not end a run."""
    options = load_params().storage
    if options.keep_last is None:
        return
    try:
        found = prune(options)
    except StageError as error:
        tell(f"nothing was pruned this time: {error}")
        return
    if found.goes:
        tell(f"pruned {len(found.goes)} checkpoints, {found.freed / 1e6:.0f} MB: {shortened(found.goes)}")


def next_window(facts: Facts, cache: Path) -> tuple[Plan, list[str]]:
    """The first window that is not up to date, or the last one; and why. Where its start is gone it waits for the
    window before it.
    """
    opened, found = read_plan(), all_windows()
    for plan in found:
        why = reasons(plan, lock_of(plan, opened), facts)
        if why or plan.is_last:
            break
    while not can_start(plan, lock_of(plan, opened), cache):
        plan, why = found[plan.number - 2], ["what the next window starts from is not in DVC's cache"]
    return plan, why


def shortened(why: list[str], most: int = 4) -> str:
    more = f" and {len(why) - most} more" if len(why) > most else ""
    return ", ".join(why[:most]) + more


def open_window(target: Plan) -> list[str]:
    """Open a window by hand, and put its files into place; the paths of those that are not in DVC's cache.

    The one that is left is closed if there is nothing to do in it, and set aside as it is if there is.
    """
    opened = read_plan()
    settle(opened)
    if target.number == opened.number:
        return check_out(opened)
    facts = facts_now(read_lock())
    if reasons(opened, read_lock(), facts) and is_up_to_date(opened):
        close(opened, facts)
    check_start(target, opened)
    switch(opened, target)
    return check_out(read_plan())


def check_start(target: Plan, opened: Plan) -> None:
    """Refuse a window that cannot be begun. One that was begun has its start in its lock, for `rloo pull`."""
    lock = lock_of(target, opened)
    for name, entry in target.entry.items():
        before = entry["window"]
        if f"window_entry@{name}" in lock or can_start(target, lock, cache_folder()):
            continue
        raise StageError(
            f"what {target.window} starts from is not in DVC's cache; {end_file(before)} names it. `rloo pull` fetches "
            f"it with {before} open (`rloo windows open {before}`); `rloo train` makes it again"
        )
