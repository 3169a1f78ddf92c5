"""The process that a user's function runs in, in its main thread, in a session of its own.

Forked by the supervisor. It reads nothing but /dev/null, its output goes into a pipe that the supervisor empties, and
what it answers is JSON. Started processes have no way to the stage, as none of the pipes are handed on.
"""

import json
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from collections.abc import Set as AnySet
from contextlib import suppress
from itertools import islice
from typing import Any, TextIO

from stages.score.calling.frames import framed, receive_frame
from stages.score.calling.processes import die_with
from stages.score.calling.told import needs
from stages.score.calling.user_code import FaultError, Function, about, load, own_files
from stages.score.calling.verdict import classify, classify_parts, shown, steady

MESSAGE = 2000  # characters of an exception that are kept
CLASSES = {"numbers": classify, "parts": classify_parts}


def run(setup: dict[str, Any], supervisor: int, pipes: tuple[int, int, int]) -> int:
    """Serve until the request pipe ends. `pipes`: requests, replies, output. Returns the exit status."""
    requests, replies, output = pipes
    _settle(setup, supervisor, output)
    try:
        function = load(setup["spec"])
        if getattr(function, "catches_memory_error", False):  # it would make a wrong answer of it: leave it to the kill
            _limit(resource.RLIMIT_DATA, resource.getrlimit(resource.RLIMIT_DATA)[1])
        answer: dict[str, Any] = {"about": about(function), "files": own_files()}
    except FaultError as fault:
        traceback.print_exc()
        answer = {"fault": steady(str(fault))[:MESSAGE]}
    except MemoryError:
        answer = {"memory": True}
    _send(replies, answer)
    own = os.getpid()
    while (frame := receive_frame(lambda count: os.read(requests, count))) is not None:
        answer = _answer(function, frame)
        if os.getpid() != own:  # a fork of the function that came back here, where it has nothing to say
            return 0
        os.chdir(setup["folder"])
        _send(replies, answer)
    return 0


def _settle(setup: dict[str, Any], supervisor: int, output: int) -> None:
    """A session, streams, limits and an import path of its own."""
    os.setsid()
    die_with(supervisor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = (_stream(descriptor) for descriptor in (1, 2))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, setup["memory_mb"] * 2**20)
    sys.path[:] = setup["path"]
    sys.argv = [setup["spec"]]
    sys.dont_write_bytecode = True  # a file that is changed twice within a second would be taken for the compiled one


def _stream(descriptor: int) -> TextIO:
    """Written line by line, so that the last words of a process that dies are kept."""
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _limit(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _answer(function: Function, frame: bytes) -> dict[str, Any]:
    """One call. What it raises is told, except for sys.exit, which ends the process as it says."""
    try:
        request = pickle.loads(frame)  # of the stage's own making; nothing that a function sends is unpickled
        if request["do"] == "check":
            function.check(**request["arguments"])  # type: ignore[attr-defined]
            return {"checked": True}
        if request["do"] == "needs":
            return {"needs": needs(function, request["arguments"])}
        result = function(**request["inputs"], **request["arguments"])
        values = _values(result, request["rows"])
        return {"verdicts": [CLASSES[request["kind"]](value) for value in values]}
    except SystemExit:
        raise
    except FaultError as fault:
        return {"fault": steady(str(fault))[:MESSAGE]}
    except MemoryError:
        traceback.print_exc()
        return {"memory": True}
    except BaseException as error:
        traceback.print_exc()
        return {"raised": described(error)}


def described(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be had)"
    return steady(f"{type(error).__name__}: {text}")[:MESSAGE]


def _values(result: Any, count: int) -> list[Any]:
    """One value per row of a list, an array, a generator, or what an async function gives."""
    if hasattr(result, "__await__"):
        result = _awaited(result)
    if isinstance(result, (str, bytes, bytearray, Mapping, AnySet, AsyncIterator)):
        raise FaultError(_no_list(result))
    try:
        length, items = _length(result), iter(result)
    except TypeError:
        raise FaultError(_no_list(result)) from None
    if length is not None and length != count:
        raise FaultError(f"returned {length} values for {count} completions; it has to return one for each, in order")
    values = list(islice(items, count + 1))  # a generator may be endless
    if len(values) != count:
        told = len(values) if len(values) < count else f"more than {count}"
        raise FaultError(f"returned {told} values for {count} completions; it has to return one for each, in order")
    return values


def _length(result: Any) -> int | None:
    return len(result) if hasattr(result, "__len__") else None


def _no_list(result: Any) -> str:
    told = "None" if result is None else f"a {type(result).__name__} ({shown(result)})"
    return f"returned {told}, not a list; it has to return one value for each completion, in order"


_runner: Any = None


def _awaited(awaitable: Any) -> Any:
    """The result, on one event loop for all calls, so that a client that a module keeps goes on working."""
    global _runner
    import asyncio

    async def whole() -> Any:
        try:
            return await awaitable
        finally:
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    if _runner is None:
        _runner = asyncio.Runner()
    return _runner.run(whole())


def _send(replies: int, answer: dict[str, Any]) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the function may have closed it
            stream.flush()
    content = memoryview(framed(json.dumps(answer).encode()))
    while content:
        content = content[os.write(replies, content) :]
