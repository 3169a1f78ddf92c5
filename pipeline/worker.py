"""The resident worker: one process that keeps imports and models warm and runs stages one after the other.

It is started by `rloo train`, answers on a Unix socket, and ends with the process that started it. It refuses work once
the code on disk is no longer the code it has imported: the stage then runs in a fresh process.
"""

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from pipeline.run_lock import at_work
from pipeline.stage import WORKER_VARIABLE, as_dvc_needs_it, end_with_parent
from stages.common.errors import StageError
from stages.common.journal import QUIET_VARIABLE
from stages.common.paths import LOGS, PARTIAL
from stages.common.processes import lives, own_identity

START_SECONDS = 60.0
OF_ALL_STAGES = ("pipeline.dvc_files", "pipeline.used", "stages.entry")


def code_state(folder: str = "stages") -> dict[str, tuple[int, ...]]:
    """Of each source file of the stages which one it is, how large, and when it was written last: one that was changed
    and changed back may have been imported in between. The last of the times cannot be set back; a new name or other
    rights change it, too, and then one stage more runs in a process of its own.
    """
    found: dict[str, tuple[int, ...]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found |= code_state(entry.path)
            elif entry.name.endswith(".py"):
                with suppress(FileNotFoundError):  # an editor's lock, or a file that goes this moment
                    stat = os.stat(entry.path)
                    found[entry.path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    return found


def serve(address: str, parent: int) -> None:
    """Answer requests until the parent ends, or until the code on disk is no longer the code that runs here. Libraries
    of models are imported with the first stage that needs them: a run that has nothing to compute does not wait for
    them. What all stages need is imported here, where an edit that is made meanwhile shows before the first of them.
    """
    end_with_parent(parent)
    code = code_state()
    for module in OF_ALL_STAGES:
        import_module(module)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(address)
        server.listen()
        current = True
        while current:
            connection, _ = server.accept()
            with connection:
                current = code_state() == code
                answer(connection, current)


def answer(connection: socket.socket, current: bool) -> None:
    """Run one stage, unless the code has changed since it was imported."""
    request = json.loads(connection.makefile().readline())
    reply: dict[str, object] = {"stale": True}
    if current:
        with at_work(), exit_with_client(connection):
            reply = run(**request)
    connection.sendall(json.dumps(reply).encode() + b"\n")


@contextmanager
def exit_with_client(connection: socket.socket) -> Iterator[None]:
    """End this process if the client hangs up while the block runs."""
    wake, waker = socket.socketpair()

    def watch() -> None:
        readable, _, _ = select.select([connection, wake], [], [])
        if wake not in readable:
            os._exit(1)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        waker.send(b".")
        thread.join()
        wake.close()
        waker.close()


def run(stage: str, name: str, dvc: str | None) -> dict[str, object]:
    """Run the stage that DVC calls `dvc`; returns what the client is told."""
    from stages.entry import run_stage

    def work(stage: str, name: str) -> int:
        run_stage(stage, name)
        return 0

    try:
        as_dvc_needs_it(stage, name, work, dvc)
    except StageError as error:
        return {"error": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error} (traceback in {LOGS / 'worker.log'})"}
    return {}


class Worker:
    """The handle that `rloo train` holds."""

    def __init__(self) -> None:
        self.address = str(PARTIAL.parent / f".worker.{own_identity()}.sock")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ensure(self) -> None:
        """Start the worker if it is not running."""
        if self.is_running:
            return
        for socket_file in Path(self.address).parent.glob(".worker.*.sock"):  # ours, and of runs that were killed
            if not lives(socket_file.name.split(".")[2]) or str(socket_file) == self.address:
                socket_file.unlink(missing_ok=True)
        LOGS.mkdir(parents=True, exist_ok=True)
        with (LOGS / "worker.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.worker", self.address, str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {QUIET_VARIABLE: "1"},
            )
        deadline = time.monotonic() + START_SECONDS
        while not Path(self.address).exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise StageError(f"the worker did not start; see {LOGS / 'worker.log'}")
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        Path(self.address).unlink(missing_ok=True)


@contextmanager
def resident_worker() -> Iterator[Worker]:
    """A worker for the duration of the block; stage commands find it through the environment."""
    worker = Worker()
    os.environ[WORKER_VARIABLE] = worker.address
    try:
        yield worker
    finally:
        del os.environ[WORKER_VARIABLE]
        worker.stop()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
