"""What a workspace shows from outside: which stages began, which processes are its own, which files are there."""

import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import psutil
import yaml
from safetensors import safe_open

from tests.workspace import Workspace

MARK = "RLOO_KILLS"  # in the environment of everything that a lane starts


def starts(workspace: Workspace) -> dict[str, tuple[str, float]]:
    """Of each stage, such as `update i0001`, the run that its journal is of, and when that began."""
    found = {}
    for path in (workspace.folder / "data" / "logs").glob("*/*.jsonl"):
        try:
            first = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])
        except (OSError, ValueError):  # it is being written
            continue
        found[f"{path.stem} {path.parent.name}"] = first["run"], first["time"]
    return found


def durations(workspace: Workspace) -> dict[str, float]:
    """Seconds from a stage's start to the next one's, in the order in which they began."""
    order = sorted(starts(workspace).items(), key=lambda item: item[1][1])
    ends = [began for _, (_, began) in order[1:]] + [order[-1][1][1] + 1.0]
    return {stage: end - began for (stage, (_, began)), end in zip(order, ends, strict=True)}


def processes(workspace: Workspace) -> list[psutil.Process]:
    """All that work in the folder, or carry its mark."""
    folder, mark = str(workspace.folder), workspace.extra[MARK]
    return [process for process in psutil.process_iter() if _belongs(process, folder, mark)]


def _belongs(process: psutil.Process, folder: str, mark: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.cwd() == folder or process.environ().get(MARK) == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return False


def end_processes(workspace: Workspace) -> list[str]:
    """End what is left, and say what it was."""
    told = []
    for process in processes(workspace):
        try:
            told.append(f"{process.pid} {' '.join(process.cmdline())}")
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return told


def seconds_until_clean(workspace: Workspace, limit: float) -> float | None:
    """How long until no process of the workspace is left and its lock is free, which a process that is being taken down
    may hold for a moment longer than it can be seen; None if that is not so after `limit` seconds.
    """
    began = time.monotonic()
    while processes(workspace) or not lock_is_free(workspace):
        if time.monotonic() - began > limit:
            return None
        time.sleep(0.05)
    return time.monotonic() - began


def hashes(workspace: Workspace) -> dict[str, dict[str, str]]:
    """Of every output in the locks of all windows, by window, stage and path."""
    found = {}
    for lock in [workspace.folder / "dvc.lock", *sorted(workspace.folder.glob("pipeline/windows/*/dvc.lock"))]:
        entries = yaml.safe_load(lock.read_text(encoding="utf-8"))["stages"]
        where = "" if lock.parent == workspace.folder else f"{lock.parent.name}: "
        found |= {where + name: {out["path"]: out["md5"] for out in entry["outs"]} for name, entry in entries.items()}
    return found


def lock_is_free(workspace: Workspace) -> bool:
    path = workspace.folder / "data" / ".run.lock"
    if not path.exists():
        return True
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def unreadable(workspace: Workspace) -> Iterator[str]:
    """Published files that are not whole."""
    for path in sorted((workspace.folder / "data").rglob("*")):
        parts = path.relative_to(workspace.folder / "data").parts
        if not path.is_file() or parts[0].startswith(".") or parts[0] == "logs":
            continue
        try:
            _read(path)
        except Exception as error:
            yield f"{path.relative_to(workspace.folder)}: {type(error).__name__}: {error}"


def _read(path: Path) -> None:
    if path.suffix == ".parquet":
        pl.read_parquet(path)
    elif path.suffix == ".json":
        json.loads(path.read_text(encoding="utf-8"))
    elif path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  it is no dict
                file.get_tensor(name)
