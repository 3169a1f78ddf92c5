"""The process between a stage and the executor: no user code runs here, so it is always there to end what does.

It watches time, memory and the stage itself. That it cannot have the kernel kill it with the stage has a reason: that
signal follows the *thread* that started a process, and stages run in threads too. It looks for the end of the socket
and for another parent instead. Being in a session of its own, it outlives a kill of the stage's whole process group
for as long as it takes to end what it watches over.
"""

import os
import select
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from stages.score.calling import executor
from stages.score.calling.frames import LENGTH, framed, receive, send
from stages.score.calling.log import Log, drain
from stages.score.calling.processes import adopt_orphans, descendants, is_running, kill_all, memory_mb, reap

TICK = 0.05  # seconds between two looks at memory and time
IDLE_TICK = 0.5
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


class StageGoneError(Exception):
    """Nobody is left to answer to."""


def main(stage: int) -> None:
    """Serve the stage, whose process id is given, on the socket that is standard input."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a thread of the stage may have blocked some
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    adopt_orphans()
    with suppress(StageGoneError, BrokenPipeError, ConnectionResetError), socket.socket(fileno=os.dup(0)) as connection:
        try:
            serve(connection, stage)
        finally:
            kill_all()


def serve(connection: socket.socket, stage: int) -> None:
    child: Child | None = None
    log = Log(os.devnull, "")
    while True:
        wait_for_request(connection, stage, child, log)
        message = receive(connection)
        if message is None:
            return
        header, payload = message
        try:
            child, log, answer = handle(connection, stage, child, log, header, payload)
        except StageGoneError:
            raise
        except Exception:
            end(child)
            child, answer = None, {"broken": traceback.format_exc()}
        send(connection, answer)


def handle(
    connection: socket.socket, stage: int, child: Child | None, log: Log, header: dict[str, Any], payload: bytes
) -> tuple[Child | None, Log, dict[str, Any]]:
    """One request: `start` an executor, `call` it, or let it `rest`. The answer comes when nothing is left behind."""
    if header["do"] == "rest":
        child = rest(child)
        return child, log, {"warm": child is not None}
    log = Log(header["log"], header["title"])
    if header["do"] == "start":
        end(child)
        child = start(header["setup"])
        payload = b""
    if child is None:
        return None, log, {"ended": "none"}
    answer = watch(connection, stage, child, log, header, payload)
    read_output(child, log)
    log.finish()
    if "ended" in answer:
        end(child)
        child = None
    return child, log, answer


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


def watch(
    connection: socket.socket, stage: int, child: Child, log: Log, header: dict[str, Any], payload: bytes
) -> dict[str, Any]:
    """Hand the payload on and wait for the reply, for the end of the process, or for a limit."""
    pending = memoryview(framed(payload) if header["do"] == "call" else b"")
    deadline, next_look = time.monotonic() + header["seconds"], time.monotonic() + TICK
    while True:
        writers = [child.requests] if pending else []
        wait = max(0.0, min(next_look, deadline) - time.monotonic())
        printed = [child.output] if child.prints else []
        readers = [connection.fileno(), child.replies, *printed]
        readable, writable, _ = select.select(readers, writers, [], wait)
        if connection.fileno() in readable:
            raise StageGoneError  # it asks nothing before it has an answer
        if writable:
            pending = _write(child, pending)
        if child.output in readable:
            read_output(child, log)
        if child.replies in readable:
            answer = _reply(child)
            if answer is not None:
                return answer
        now = time.monotonic()
        if now >= deadline:
            return {"ended": "timeout"}
        if now >= next_look:
            next_look = now + TICK
            answer = _look(stage, child, header["memory_mb"])
            if answer is not None:
                return answer


def _look(stage: int, child: Child, limit_mb: int) -> dict[str, Any] | None:
    """What the clock brings: is the stage there, the executor, and is the memory within its limit?"""
    if os.getppid() != stage:
        raise StageGoneError
    _reap(child)
    if child.status is not None:
        return _ended(child)
    below = descendants(os.getpid())
    return {"ended": "memory"} if memory_mb(below, limit_mb) > limit_mb else None


def _write(child: Child, pending: memoryview) -> memoryview:
    try:
        return pending[os.write(child.requests, pending[: 1 << 20]) :]
    except BlockingIOError:
        return pending
    except BrokenPipeError:  # its end is told by the other pipe
        return memoryview(b"")


def _reply(child: Child) -> dict[str, Any] | None:
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
        _reap(child)
        if child.status is not None:
            return _ended(child)
        time.sleep(0.002)
    return {"ended": "protocol"}


def _reap(child: Child) -> None:
    child.status = reap().get(child.pid, child.status)


def _ended(child: Child) -> dict[str, Any]:
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


def rest(child: Child | None) -> Child | None:
    """Keep the executor if it is alone; if it left processes, end it with them."""
    if child is None:
        return None
    _reap(child)
    below = [pid for pid in descendants(os.getpid()) if is_running(pid)]
    if below == [child.pid]:
        return child
    end(child)
    return None


def end(child: Child | None) -> None:
    """Kill everything, and close what was left of its pipes; there is no executor then."""
    kill_all()
    for descriptor in (child.requests, child.replies, child.output) if child is not None else ():
        os.close(descriptor)


def wait_for_request(connection: socket.socket, stage: int, child: Child | None, log: Log) -> None:
    while True:
        printed = [child.output] if child is not None and child.prints else []
        readable, _, _ = select.select([connection.fileno(), *printed], [], [], IDLE_TICK)
        if child is not None and child.output in readable:
            read_output(child, log)
        if connection.fileno() in readable:
            return
        if os.getppid() != stage:
            raise StageGoneError
