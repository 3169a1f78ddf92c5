"""The command of every DVC stage: `python -m pipeline.stage rollout i0003`.

A light client. Where `rloo train` keeps a warm worker (RLOO_WORKER holds its address) the work is handed to it;
otherwise it is done here. Either way the same function writes the same bytes. Nothing but the standard
library, YAML and modules that need no more is imported before that is decided.

It has the workspace's run lock for as long as the stage takes, unless `rloo train` has it and started this; and it
fails if code or params of the stage were edited meanwhile, as DVC would take them for those that were used.
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

from pipeline.dvc_files import keep_lock
from pipeline.run_lock import at_work, run_lock
from pipeline.used import check_used, watched
from stages.common.errors import StageError
from stages.common.journal import QUIET_VARIABLE

WORKER_VARIABLE = "RLOO_WORKER"
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
            connection.sendall(json.dumps({"stage": stage, "name": name}).encode() + b"\n")
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
            return run_here(stage, [name])
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
    return as_stage(stage, name, work)


def as_stage(stage: str, name: str, work: Callable[[str, str], int]) -> int:
    """Do the work of a stage of dvc.yaml as one: it ends with DVC, has the run lock, and was not edited meanwhile."""
    end_with_parent()
    try:
        with run_lock(f"stage {stage} {name}"):
            check_used()  # of the stage before this one
            keep_lock()
            return watched(stage, name, work)
    except StageError as error:
        print(f"{stage} {name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
