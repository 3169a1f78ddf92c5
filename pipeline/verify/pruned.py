"""Checkpoints that pruning has taken are not there, and no fault: told apart from files that are really missing."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pipeline.storage.page import listed
from pipeline.storage.prune import checkpoint_folder
from pipeline.storage.push import prunable
from pipeline.storage.windows import read_windows
from pipeline.verify.findings import Finding
from stages.common import paths


def told_apart(findings: Sequence[Finding]) -> list[Finding]:
    """The same, with `pruned` for what is missing of a checkpoint of a finished window that is gone as a whole.

    `detail` of these is the window.
    """
    if not paths.PLAN.exists() or all(one.state != "missing" for one in findings):
        return list(findings)
    window_of = {checkpoint_folder(out.path): window.name for window in read_windows() for out in prunable([window])}
    return [_told(one, window_of) for one in findings]


def _told(one: Finding, window_of: dict[Path, str]) -> Finding:
    folder = next((folder for folder in one.path.parents if folder in window_of), None)
    if one.state != "missing" or folder is None or folder.exists():  # pruning takes folders, and no part of one
        return one
    return replace(one, state="pruned", detail=window_of[folder])


def show_pruned(console: Console, findings: Iterable[Finding]) -> None:
    """One line of all of them, and how they come back: nothing does it by itself."""
    found = [one for one in findings if one.state == "pruned"]
    if found:
        names = sorted({checkpoint_folder(one.path).name for one in found}, key=paths.iteration_number)
        first, *more = sorted({one.detail for one in found})
        others = f"; those of {listed(more)} likewise" if more else ""
        console.print(
            f"pruned: checkpoints of {listed(names)}. `rloo pull {first}` brings those of {first} back where a remote "
            f"has them, `rloo windows open {first}` and `dvc repro` make them again{others}",
            highlight=False,
        )
