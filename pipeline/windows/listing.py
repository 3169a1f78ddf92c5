"""`rloo windows`: the windows of the run, a line each."""

from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.lock_text import Lock
from pipeline.plan import Plan, read_plan
from pipeline.windows.cached import cache_folder, is_cached
from pipeline.windows.layout import begun, belongs, lock_of, windows
from pipeline.windows.lock import of_windows, outs, read_lock
from pipeline.windows.made_of import Facts, facts_now, reasons
from pipeline.windows.metrics import Metrics, history_of, metrics_of, seconds_in
from pipeline.windows.walk import shortened


@dataclass(frozen=True)
class Line:
    """A window, its state, and of its outputs how many there are, bytes in DVC's cache, and how many are not there."""

    plan: Plan
    state: str
    why: list[str]
    metrics: Metrics
    seconds: float | None
    outputs: int
    size: int
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
    made = [out for stage in of_windows(lock) for out in outs(lock, stage).values()]
    there = [out for out in made if is_cached(cache, out["md5"])]
    state, why = state_of(plan, lock, opened, facts)
    size = sum(int(out.get("size", 0)) for out in there)
    metrics = metrics_of(plan, history_of(lock, cache))
    return Line(plan, state, why, metrics, seconds_in(plan), len(made), size, len(made) - len(there))


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
    for title in ("reward", "held out", "KL", "seconds", "MB", "pruned"):
        table.add_column(title, justify="right")
    for line in found:
        table.add_row(*_cells(line))
    console.print(table)
    for line in found:
        if "outdated" in line.state:
            console.print(f"{line.plan.window}: {shortened(line.why)}", markup=False, highlight=False)


def _cells(line: Line) -> list[str]:
    measured = line.metrics
    return [
        line.plan.window,
        f"{line.plan.names[0]} to {line.plan.last}",
        line.state,
        *(number(value) for value in (measured.reward, measured.held_out, measured.kl)),
        "-" if line.seconds is None else f"{line.seconds:.0f}",
        f"{line.size / 1e6:.1f}" if line.outputs else "-",
        f"{line.gone} of {line.outputs}" if line.gone else "-" if not line.outputs else "no",
    ]


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:z.3f}"
