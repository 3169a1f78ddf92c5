"""`rloo windows compare`: which outputs of two windows, or of one at two revisions, are the same bytes, and metrics."""

import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.dvc_files import LOCK
from pipeline.lock_text import Lock, split
from pipeline.plan import PLAN_FILE, Plan, parse_plan, read_plan
from pipeline.windows.cached import cache_folder
from pipeline.windows.files import saved_lock, saved_plan
from pipeline.windows.layout import find, lock_of
from pipeline.windows.listing import number
from pipeline.windows.lock import of_windows, outs
from pipeline.windows.metrics import Metrics, history_of, metrics_of
from stages.common.errors import StageError

SHOWN = 12  # stages that differ
TITLES = {
    "reward": "reward, mean",
    "held_out": "held-out reward, last",
    "kl": "KL, last",
    "length": "length, mean",
    "entropy": "entropy, last",
    "alarms": "iterations with an alarm",
}


@dataclass(frozen=True)
class Side:
    """A window, now or at a revision of git."""

    name: str
    plan: Plan
    lock: Lock


def side(text: str) -> Side:
    """`w0002`, `i0047` or `w0002@HEAD~1`; a StageError if it is not there."""
    name, at, revision = text.partition("@")
    if at:
        return side_at(name, revision)
    plan, opened = find(name), read_plan()
    lock = of_windows(lock_of(plan, opened))
    if not lock:
        raise StageError(f"{plan.window} is not begun yet; `rloo windows` lists the windows of the run")
    return Side(plan.window, plan, lock)


def side_at(window: str, revision: str) -> Side:
    """The window as the revision has it: in its folder, or open."""
    opened = text_at(revision, PLAN_FILE)
    if opened is not None and parse_plan(opened, f"{revision}:{PLAN_FILE}").window == window:
        plan_file, lock_file = PLAN_FILE, LOCK
    else:
        plan_file, lock_file = saved_plan(window), saved_lock(window)
    plan, lock = text_at(revision, plan_file), text_at(revision, lock_file)
    if plan is None or lock is None:
        raise StageError(f"{window}@{revision}: git has no {plan_file} with {lock_file} at {revision}")
    source = Path(f"{revision}:{lock_file}")
    return Side(f"{window}@{revision}", parse_plan(plan, f"{revision}:{plan_file}"), of_windows(split(lock, source)))


def text_at(revision: str, path: Path) -> str | None:
    """A file of the project at a revision; None if it was not there."""
    if not exists(revision):
        raise StageError(f"git knows no revision {revision!r} here")
    done = subprocess.run(["git", "show", f"{revision}:./{path}"], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def exists(revision: str) -> bool:
    asked = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    return subprocess.run(asked, capture_output=True).returncode == 0


def different(left: Side, right: Side) -> dict[str, list[str]]:
    """Stages that both have -> the paths of their outputs that are not the same bytes, or that one of them lacks."""
    found = {}
    for stage in left.lock:
        if stage in right.lock:
            a, b = ({path: out["md5"] for path, out in outs(one.lock, stage).items()} for one in (left, right))
            found[stage] = sorted(path for path in {**a, **b} if a.get(path) != b.get(path))
    return found


def compare(console: Console, a: str, b: str) -> None:
    """Bytes first, where they cover the same iterations, then metrics side by side."""
    left, right = side(a), side(b)
    common = set(left.plan.names) & set(right.plan.names)
    if common:
        show_bytes(console, left, right, different(left, right))
    else:
        told = f"{left.name} and {right.name} have no iteration in common: only metrics can be compared"
        console.print(told, markup=False, highlight=False)
    cache = cache_folder()
    show_metrics(console, left, right, [metrics_of(one.plan, history_of(one.lock, cache)) for one in (left, right)])


def show_bytes(console: Console, left: Side, right: Side, found: dict[str, list[str]]) -> None:
    changed = {stage: names for stage, names in found.items() if names}
    lines = [f"{len(found) - len(changed)} of {len(found)} stages have the same bytes in {left.name} and {right.name}"]
    lines += [f"  {stage}: {', '.join(names)}" for stage, names in list(changed.items())[:SHOWN]]
    if len(changed) > SHOWN:
        lines.append(f"  and {len(changed) - SHOWN} stages more")
    for one, other in ((left, right), (right, left)):
        only = [stage for stage in one.lock if stage not in other.lock]
        if only:
            lines.append(f"  only in {one.name}: {', '.join(only[:SHOWN])}{' ...' if len(only) > SHOWN else ''}")
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def show_metrics(console: Console, left: Side, right: Side, found: list[Metrics]) -> None:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for one in (left, right):
        table.add_column(f"{one.name} ({one.plan.names[0]} to {one.plan.last})", justify="right")
    for field in fields(Metrics):
        values = [getattr(one, field.name) for one in found]
        shown = [str(value) if isinstance(value, int) else number(value) for value in values]
        table.add_row(TITLES[field.name], *shown)
    console.print(table)
    if Metrics() in found:
        console.print("-: the history of that window is not in DVC's cache", markup=False, highlight=False)
