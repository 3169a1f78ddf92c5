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
from typing import Any

from stages.score.calling.child import Child, end, ended, read_output, read_reply, start, wait_for, write_request
from stages.score.calling.frames import framed, receive, send
from stages.score.calling.log import Log
from stages.score.calling.processes import adopt_orphans, descendants, is_running, kill_all, memory_mb

TICK = 0.05  # seconds between two looks at memory and time
IDLE_TICK = 0.5


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
            pending = write_request(child, pending)
        if child.output in readable:
            read_output(child, log)
        if child.replies in readable:
            answer = read_reply(child)
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
    wait_for(child)
    if child.status is not None:
        return ended(child)
    below = descendants(os.getpid())
    return {"ended": "memory"} if memory_mb(below, limit_mb) > limit_mb else None


def rest(child: Child | None) -> Child | None:
    """Keep the executor if it is alone; if it left processes, end it with them."""
    if child is None:
        return None
    wait_for(child)
    below = [pid for pid in descendants(os.getpid()) if is_running(pid)]
    if below == [child.pid]:
        return child
    end(child)
    return None


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
