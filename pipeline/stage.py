"""The command of every DVC stage: `python -m pipeline.stage rollout i0003`.

A light client. Where `rloo train` keeps a warm worker (RLOO_WORKER holds its address) the work is handed to it;
otherwise it is done here. Either way the same functions do the same. Nothing but the standard library and modules that
need no more is imported before that is decided.

It has the workspace's run lock for as long as the stage takes, unless `rloo train` has it and started this.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pipeline.run_lock import at_work, run_lock
from stages.common.errors import StageError
from stages.common.journal import QUIET_VARIABLE

WORKER_VARIABLE = "RLOO_WORKER"
DVC_STAGE = "DVC_STAGE"  # set by DVC: `rollout@i0003`, `path/dvc.yaml:method@rloo`
POLL_SECONDS = 0.2
PR_SET_PDEATHSIG = 1  # of prctl(2)


def exit_with_parent(parent: int | None = None) -> None:
    """End this process when its parent is gone: a killed `dvc repro` must not leave a stage running.

    A parent's id that is given is compared from the start: the parent may be gone before this process can look.
    """
    parent = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_with_parent(parent: int | None = None) -> None:
    """Where the kernel can do it (Linux), it kills this process with the one that waits for it, at once: a thread that
    looks may be held up while libraries are loaded. Not for what is to outlive the thread that started it.
    """
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    exit_with_parent(parent)


def ask_worker(address: str, stage: str, name: str) -> dict[str, str] | None:
    """The worker's answer, `{}` or `{"error": ...}`; None if there is none to be had and the work is still to do."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(address)
            request = {"stage": stage, "name": name, "dvc": os.environ.get(DVC_STAGE)}
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = connection.makefile().readline()
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except ConnectionResetError:
        answer = ""
    if not answer:
        return {"error": f"the worker died while it ran {stage} {name}"}
    found: dict[str, str] = json.loads(answer)
    return None if "stale" in found else found


def work(stage: str, name: str) -> int:
    """Have the stage done, by the worker or here; returns the exit status."""
    address = os.environ.get(WORKER_VARIABLE)
    answer = ask_worker(address, stage, name) if address else None
    if answer is None:
        try:
            from stages.entry import main as run_here
        except ModuleNotFoundError as error:
            print(f"{error}; run `source .venv/bin/activate` first, or `make setup`", file=sys.stderr)
            return 1
        with at_work():
            return as_dvc_needs_it(stage, name, lambda stage, name: run_here(stage, [name]), os.environ.get(DVC_STAGE))
    if "error" in answer:
        if not os.environ.get(QUIET_VARIABLE):
            print(f"{stage} {name}: {answer['error']}", file=sys.stderr)
        return 1
    return 0


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m pipeline.stage STAGE NAME", file=sys.stderr)
        return 2
    stage, name = arguments
    return locked(stage, name, work)


def as_stage(stage: str, name: str, work: Callable[[str, str], int]) -> int:
    """Do the work of a stage of dvc.yaml here, as one: it ends with DVC, has the run lock, was not edited meanwhile."""
    return locked(stage, name, lambda stage, name: as_dvc_needs_it(stage, name, work, os.environ.get(DVC_STAGE)))


def as_dvc_needs_it(stage: str, name: str, work: Callable[[str, str], int], addressing: str | None) -> int:
    """Do the work; fail if code or params of the stage were edited meanwhile: DVC would take them for those used."""
    from pipeline.dvc_files import keep_lock
    from pipeline.used import check_used, watched

    check_used()  # of the stage before this one
    keep_lock()
    return watched(stage, name, work, addressing)


def locked(stage: str, name: str, work: Callable[[str, str], int]) -> int:
    """Do the work with the run lock, for as long as DVC waits for it; returns the exit status."""
    end_with_parent()
    try:
        with run_lock(f"stage {stage} {name}"):
            return work(stage, name)
    except StageError as error:
        print(f"{stage} {name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
