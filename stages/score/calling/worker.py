"""The stage's side of a supervisor: starting it, and asking it something.

No signal handler, and nothing that needs the main thread: a stage may run in a thread of a Prefect worker. A worker is
used by one thread at a time (`resident.py`).
"""

import json
import os
import pickle
import secrets
import socket
import subprocess
import sys
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from stages.common import paths
from stages.common.errors import StageError, TransientError
from stages.score.calling.frames import receive, send
from stages.score.calling.processes import kill_marked

ROOT = Path(__file__).resolve().parents[3]  # where the supervisor, which has no other path, finds `stages`
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from stages.score.calling.supervisor import main"
MARK = "REWARD_PROCESSES_OF"  # the variable that the mark is in
STOP: ContextVar[Event | None] = ContextVar("STOP", default=None)  # set: what this thread asks for is wanted no more
STOP_SECONDS = 0.2  # between two looks at it
GRACE = 60.0  # seconds over a limit, in which the supervisor has to answer
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")


class RewardError(StageError):
    """A reward function that is wrong as a whole; the message names it and the remedy."""


class RewardLostError(RewardError, TransientError):
    """Rows have no reward because a server did not answer; it may at the next try, and finished calls are kept."""


class UnwantedError(Exception):
    """Another function has failed, or the stage is interrupted."""


@dataclass
class Worker:
    """A supervisor process, and the executor below it, if there is one."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    mark: str = ""  # in the environment of all that is below it
    about: dict[str, Any] | None = None  # of the function that the executor holds; None: there is no executor
    files: dict[str, list[int]] = field(default_factory=dict)  # that it has imported, as they were


def environment() -> dict[str, str]:
    """The stage's own, keys of paid judges among it. By default a function computes on one core, as several run side by
    side, and sets have the same order in each process.
    """
    return dict.fromkeys(ONE_THREAD, "1") | {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"} | os.environ


def open_worker() -> Worker:
    """Start a supervisor, in a session of its own: a kill of the stage's process group must not take it along."""
    ours, theirs = socket.socketpair()
    mark = secrets.token_hex(16)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{BOOT}; main(int(sys.argv[2]))", str(ROOT), str(os.getpid())],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment() | {MARK: mark},
            start_new_session=True,
        )
    return Worker(process, ours, mark)


def close_worker(worker: Worker) -> None:
    """Have everything ended, and wait for it."""
    worker.connection.close()
    try:
        worker.process.wait(GRACE)
    except subprocess.TimeoutExpired:  # it was stopped, by whomever
        worker.process.kill()
        worker.process.wait()
    if worker.process.returncode != 0:  # it was killed, and could not see to the rest
        kill_marked(worker.mark)


def ask(worker: Worker, header: dict[str, Any], payload: bytes = b"") -> dict[str, Any]:
    """The supervisor's answer: {"reply": ...} of the executor, or {"ended": how}."""
    if (stop := STOP.get()) is not None and stop.is_set():  # it might be paid for
        raise UnwantedError
    try:
        worker.connection.settimeout(GRACE)
        send(worker.connection, header, payload)
        _wait(worker.connection, header.get("seconds", 0.0) + GRACE)
        message = receive(worker.connection)
    except OSError:
        message = None
    if message is None:  # killed from outside, or by the function itself
        worker.about = None
        return {"ended": "supervisor"}
    answer = message[0]
    if "broken" in answer:
        raise RuntimeError(f"supervisor of a reward function: {answer['broken']}")
    if "reply" in answer:
        try:
            reply = json.loads(answer["reply"])
            assert isinstance(reply, dict)
            return {"reply": reply}
        except (ValueError, AssertionError):
            answer = {"ended": "protocol"}
    if "ended" in answer or answer.get("warm") is False:
        worker.about = None
    return answer


def _wait(connection: socket.socket, seconds: float) -> None:
    """Until an answer begins, or the other side is gone, or the answer is wanted no more."""
    stop, deadline = STOP.get(), monotonic() + seconds
    connection.settimeout(STOP_SECONDS)
    while monotonic() < deadline:
        if stop is not None and stop.is_set():
            raise UnwantedError
        with suppress(TimeoutError):
            connection.recv(1, socket.MSG_PEEK)
            break
    connection.settimeout(GRACE)


def call_executor(
    worker: Worker, request: dict[str, Any], limits: dict[str, Any], log: dict[str, str]
) -> dict[str, Any]:
    """One request to a started executor. `limits`: seconds and memory_mb; `log`: its path and a title."""
    return ask(worker, {"do": "call", **limits, **log}, pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL))


def start_executor(worker: Worker, spec: str, limits: dict[str, Any], log: dict[str, str]) -> dict[str, Any]:
    """Import the function; `worker.about` and `worker.files` then tell of it."""
    setup = {"spec": spec, "folder": os.getcwd(), "path": absolute_path(), "memory_mb": limits["memory_mb"]}
    answer = ask(worker, {"do": "start", "setup": setup, **limits, **log})
    reply = answer.get("reply", {})
    worker.about, worker.files = reply.get("about"), reply.get("files", {})
    return answer


def absolute_path() -> list[str]:
    """Where this process imports from; the empty entry is the working folder."""
    return [os.path.abspath(entry) for entry in sys.path]


def log_path(name: str) -> Path:
    """Where what the reward `name` prints is kept."""
    return paths.LOGS / "rewards" / f"{name}.log"
