"""What `rloo storage`, `rloo push` and `rloo pull` print."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.storage.prune import Pruning
from pipeline.storage.usage import SHARED, Usage

NAMES = 8  # of iterations, before a list is cut


def size(count: int) -> str:
    """Bytes for people: 1.5 MB is 1,500,000 bytes."""
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def listed(names: Iterable[str]) -> str:
    """`i0001, i0002, ... (12 in all)`."""
    all_names = list(names)
    short = ", ".join(all_names[:NAMES])
    return short if len(all_names) <= NAMES else f"{short}, ... ({len(all_names)} in all)"


def _table(console: Console, title: str, rows: dict[str, int], total: str) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("what")
    table.add_column("size", justify="right")
    for name, count in sorted(rows.items(), key=lambda row: (-row[1], row[0])):
        table.add_row(name, size(count))
    counted = sum(count for name, count in rows.items() if name != SHARED)
    table.add_section()
    table.add_row(total, size(counted))
    console.print(table)


def show_usage(console: Console, found: Usage) -> None:
    _table(console, "Workspace, data/", found.workspace, "workspace")
    _table(console, "DVC's cache", found.cache, "beside the workspace")
    for database, count in found.prefect.items():
        console.print(f"Prefect's database {database}: {size(count)}")
    table = Table(title="Windows, what of them is in the cache", title_justify="left")
    for name in ("window", "", "iterations", "trained", "policies", "checkpoints", "all"):
        table.add_column(name, justify="left" if name in ("window", "", "iterations") else "right", no_wrap=True)
    for row in found.windows:
        table.add_row(*_window_cells(row))
    console.print(table)


def _window_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["window"],
        row["state"],
        row["iterations"],
        str(row["trained"]),
        str(row["policies_here"]),
        size(row["checkpoints"]),
        size(row["all"]),
    )


def show_pruning(console: Console, found: Pruning, *, keeps: bool, done: bool) -> None:
    """`keeps`: whether params.yaml says what to keep; `done`: whether it has been pruned, or would be."""
    if not keeps:
        console.print("storage.keep_last in params.yaml is null: nothing is ever pruned.")
    elif found.goes:
        verb = "Pruned" if done else "Pruning would remove"
        freed = "freed" if done else "would be free"
        console.print(f"{verb} the checkpoints of {listed(found.goes)}; {size(found.freed)} {freed}.")
    elif found.freed:
        console.print(f"{size(found.freed)} that an earlier pruning left {'are' if done else 'would be'} gone.")
    else:
        console.print("Nothing to prune.")
    for holder in sorted(set(found.held.values())):
        held = [path for path, who in found.held.items() if who == holder]
        console.print(f"  stays in the cache, needed by {holder}: {listed(held)}")
