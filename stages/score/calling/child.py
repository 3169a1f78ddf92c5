"""The executor as the supervisor has it: forking it, the pipes to and from it, how it ended, and its end."""

import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stages.score.calling import executor
from stages.score.calling.frames import LENGTH
from stages.score.calling.log import Log, drain
from stages.score.calling.processes import kill_all, kill_session, reap

LARGEST_REPLY = 2**28  # bytes; more is no reply, but something that was written over it


@dataclass
class Child:
    """The executor and this side of its pipes."""

    pid: int
    requests: int
    replies: int
    output: int
    reply: bytearray = field(default_factory=bytearray)
    status: int | None = None  # as waited for
    prints: bool = True  # false: its output is closed


def start(setup: dict[str, Any]) -> Child:
    """Fork the executor; it serves in there and never comes back."""
    (requests, to_executor), (from_executor, replies), (printed, output) = os.pipe(), os.pipe(), os.pipe()
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_executor(setup, supervisor, (requests, replies, output), (to_executor, from_executor, printed))
    for descriptor in (requests, replies, output):
        os.close(descriptor)
    for descriptor in (to_executor, from_executor, printed):
        os.set_blocking(descriptor, False)
    return Child(pid, to_executor, from_executor, printed)


def _be_executor(setup: dict[str, Any], supervisor: int, pipes: tuple[int, int, int], others: tuple[int, ...]) -> None:
    """Ends this process with the status that the function asks for."""
    status = 70
    try:
        for descriptor in set(range(3, max(*pipes, *others) + 1)) - set(pipes):  # with the socket to the stage
            with suppress(OSError):
                os.close(descriptor)
        status = executor.run(setup, supervisor, pipes)
    except SystemExit as ending:
        status = _status(ending.code)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def write_request(child: Child, pending: memoryview) -> memoryview:
    try:
        return pending[os.write(child.requests, pending[: 1 << 20]) :]
    except BlockingIOError:
        return pending
    except BrokenPipeError:  # its end is told by the other pipe
        return memoryview(b"")


def read_reply(child: Child) -> dict[str, Any] | None:
    """The whole reply, or how the process ended; None: more is to come."""
    try:
        more = os.read(child.replies, 1 << 20)
    except BlockingIOError:
        return None
    if not more:
        return _closed(child)
    child.reply += more
    if len(child.reply) < LENGTH.size:
        return None
    length = LENGTH.unpack(child.reply[: LENGTH.size])[0]
    if length > LARGEST_REPLY:
        return {"ended": "protocol"}
    if len(child.reply) < LENGTH.size + length:
        return None
    content = bytes(child.reply[LENGTH.size : LENGTH.size + length])
    del child.reply[: LENGTH.size + length]
    return {"reply": content.decode("utf-8", "replace")}


def _closed(child: Child) -> dict[str, Any]:
    """Nothing more can come: the process has ended or is about to, or it closed its pipe and goes on, which ends it."""
    for _ in range(100):
        wait_for(child)
        if child.status is not None:
            return ended(child)
        time.sleep(0.002)
    return {"ended": "protocol"}


def wait_for(child: Child) -> None:
    child.status = reap().get(child.pid, child.status)


def ended(child: Child) -> dict[str, Any]:
    assert child.status is not None
    if os.WIFSIGNALED(child.status):
        number = os.WTERMSIG(child.status)
        try:
            return {"ended": "signal", "name": signal.Signals(number).name}
        except ValueError:  # a real-time signal has no name
            return {"ended": "signal", "name": f"signal {number}"}
    return {"ended": "exit", "status": os.WEXITSTATUS(child.status)}


def read_output(child: Child, log: Log) -> None:
    child.prints = child.prints and drain(child.output, log)


def end(child: Child | None) -> None:
    """Kill everything, and close what was left of its pipes; there is no executor then."""
    if child is not None and child.status is None:
        kill_session(child.pid)
    kill_all()
    for descriptor in (child.requests, child.replies, child.output) if child is not None else ():
        os.close(descriptor)
