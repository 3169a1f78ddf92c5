"""What benchmarks share: child processes measured one after the other, their peak memory, tables and JSON."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MARKER = ".bench"
WIDTH = 180  # characters, or the columns of numbers are cut


def peak_gigabytes() -> float:
    """Most resident memory that this process ever had, and of its children the largest (a reward's process)."""
    kibibytes = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return kibibytes * 1024 / 1e9


def fresh(folder: Path) -> Path:
    """A folder for a bench, made anew; one that no bench has made is left alone."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).exists():
        sys.exit(f"{folder}: is there, and no bench has made it; name another folder")
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def mark(folder: Path) -> None:
    """Let a later run of a bench make the folder anew."""
    (folder / MARKER).touch()


def in_child(module: str, *arguments: str, threads: int) -> dict[str, Any]:
    """Run `python -m module` with so many threads; its last line is its result, as JSON."""
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "PYTHONPATH": str(ROOT),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"{module} {' '.join(arguments)} ended with status {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def middle(results: list[dict[str, Any]], key: str) -> float:
    """The median over runs and steps of a number or of a list of numbers."""
    values = [one for result in results for one in (result[key] if isinstance(result[key], list) else [result[key]])]
    return float(median(values))


def publish(name: str, title: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, and write them to tests/bench/<name>.json."""
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    Console(width=max(WIDTH, Console().width)).print(table)
    (HERE / f"{name}.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
