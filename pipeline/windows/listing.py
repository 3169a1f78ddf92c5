"""`rloo windows`: the windows of the run, a line each."""

from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.lock_text import Lock
from pipeline.plan import Plan, read_plan
from pipeline.storage.page import size
from pipeline.storage.prune import is_checkpoint
from pipeline.storage.windows import Out
from pipeline.windows.cached import cache_folder, is_cached
from pipeline.windows.layout import begun, belongs, lock_of, windows
from pipeline.windows.lock import of_windows, outs, read_lock
from pipeline.windows.made_of import Facts, facts_now, reasons
from pipeline.windows.metrics import Metrics, history_of, metrics_of, seconds_in
from pipeline.windows.walk import shortened

GONE = "are not in DVC's cache: `rloo pull` fetches them where a remote has them"


@dataclass(frozen=True)
class Line:
    """A window, its state, and what of its own outputs DVC's cache has: bytes, each content once.

    `pruned`: iterations whose checkpoint is not there, but for the window's last; `gone`: other outputs.
    """

    plan: Plan
    state: str
    why: list[str]
    metrics: Metrics
    seconds: float | None
    outputs: int
    size: int
    pruned: int
    gone: int


def state_of(plan: Plan, lock: Lock, opened: Plan, facts: Facts) -> tuple[str, list[str]]:
    """`planned`, `begun`, `finished` or `outdated`, and `open` with it; and why it is outdated."""
    why = reasons(plan, lock, facts)
    if not begun(plan, lock):
        state = "planned"
    elif why == ["not finished"]:
        state = "begun"
    else:
        state = "outdated" if why else "finished"
    if plan.number == opened.number:
        return ("open" if state in ("planned", "begun") else f"open, {state}"), why
    return state, why


def line_of(plan: Plan, opened: Plan, facts: Facts, cache: Path) -> Line:
    lock = lock_of(plan, opened) if plan.number == opened.number or belongs(plan) else {}
    made = [out for stage in of_windows(lock) for out in _outs(lock, stage)]
    absent = {out for out in made if not is_cached(cache, out.md5)}
    pruned = {out for out in absent if is_checkpoint(out) and out.iteration != plan.last}
    sizes = {out.md5: out.size for out in made if out not in absent}
    state, why = state_of(plan, lock, opened, facts)
    return Line(
        plan,
        state,
        why,
        metrics_of(plan, history_of(lock, cache)),
        seconds_in(plan),
        outputs=len(made),
        size=sum(sizes.values()),
        pruned=len({out.iteration for out in pruned}),
        gone=len(absent) - len(pruned),
    )


def _outs(lock: Lock, stage: str) -> list[Out]:
    return [Out(stage, path, out["md5"], int(out.get("size", 0))) for path, out in outs(lock, stage).items()]


def lines() -> list[Line]:
    """All windows, in order."""
    opened, cache = read_plan(), cache_folder()
    facts = facts_now(read_lock())
    return [line_of(plan, opened, facts, cache) for plan in windows(opened)]


def show(console: Console) -> None:
    """A table, and why windows are outdated."""
    found = lines()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for title in ("window", "iterations", "state"):
        table.add_column(title)
    for title in ("reward", "held\nout", "KL", "s", "in the\ncache", "pruned"):
        table.add_column(title, justify="right")
    for line in found:
        table.add_row(*_cells(line))
    console.print(table)
    for line in found:
        if "outdated" in line.state:
            console.print(f"{line.plan.window}: {shortened(line.why)}", markup=False, highlight=False)
        if line.gone:
            console.print(f"{line.plan.window}: {line.gone} of {line.outputs} outputs {GONE}", highlight=False)


def _cells(line: Line) -> list[str]:
    measured = line.metrics
    return [
        line.plan.window,
        f"{line.plan.names[0]}-{line.plan.last}",
        line.state,
        *(number(value) for value in (measured.reward, measured.held_out, measured.kl)),
        "-" if line.seconds is None else f"{line.seconds:.0f}",
        size(line.size) if line.outputs else "-",
        f"{line.pruned} of {len(line.plan.names)}" if line.pruned else "none" if line.outputs else "-",
    ]


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:z.3f}"
