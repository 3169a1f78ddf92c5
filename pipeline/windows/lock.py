"""The locks of windows: entries are moved between them as DVC wrote them.

Entries of iterations, of the window's entry and of the history belong to a window. All others, of the preparation and
of what is trained on pairs alone, belong to the run, and are in the open lock.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pipeline.dvc_files import LOCK, keep_lock
from pipeline.lock_text import Lock, lock_text, split
from pipeline.plan import LOADER, Plan
from pipeline.windows.files import replace_text
from stages.common.paths import INITIAL

OF_WINDOW = re.compile(r"(window_entry|rollout|score|advantage|diagnose|update|evaluate|judge)@i[0-9]{4,}")

Out = dict[str, Any]  # md5, size, nfiles


def read_lock(path: Path = LOCK) -> Lock:
    """No entries where there is no lock."""
    return split(path.read_text(encoding="utf-8"), path) if path.exists() else {}


def write_lock(lock: Mapping[str, str], path: Path = LOCK) -> None:
    """By rename, and only if something changes."""
    text = lock_text(lock)
    if (lock or path.exists()) and not (path.exists() and path.read_text(encoding="utf-8") == text):
        replace_text(path, text)
        if path == LOCK:
            keep_lock(path)  # a copy of another window's would be put in the place of a damaged one


def of_a_window(stage: str) -> bool:
    """Whether the stage belongs to a window, and not to the run."""
    return stage == "history" or (OF_WINDOW.fullmatch(stage) is not None and not stage.endswith(f"@{INITIAL}"))


def of_the_run(lock: Lock) -> Lock:
    return {stage: lines for stage, lines in lock.items() if not of_a_window(stage)}


def of_windows(lock: Lock) -> Lock:
    return {stage: lines for stage, lines in lock.items() if of_a_window(stage)}


def stages_of(plan: Plan) -> set[str]:
    """The stages that belong to the window."""
    named = {stage for name in plan.names for stage in plan.stages_of(name)}
    return named | {f"window_entry@{name}" for name in plan.entry} | {"history"}


def trimmed(lock: Lock, plan: Plan) -> Lock:
    """Without what belongs to other windows."""
    own = stages_of(plan)
    kept = {stage: lines for stage, lines in lock.items() if stage in own or not of_a_window(stage)}
    if f"history {plan.last}\n" not in kept.get("history", ""):  # its command: that of another window
        kept.pop("history", None)
    return kept


def outs(lock: Lock, stage: str) -> dict[str, Out]:
    """path -> {md5, size, nfiles} of a stage; none where it has no entry."""
    if stage not in lock:
        return {}
    (entry,) = yaml.load(lock[stage], Loader=LOADER).values()
    kept = ("md5", "size", "nfiles")
    return {out["path"]: {key: out[key] for key in kept if key in out} for out in entry.get("outs", [])}
