"""Calling functions of another process with plain values, when neither process may trust the other.

Messages are JSON lines: a request, and its answer; while one waits for its answer it serves the requests of the other.
How values travel is in stages/score/values.py, what stands for objects that do not in stages/score/remote.py.

Both processes load this file by themselves, so that only the standard library is imported.
"""

import builtins
import json
import operator
from collections.abc import Callable
from typing import Any, BinaryIO

from stages.score.values import Values, renew


class Peer:
    """One end. The other end may use the objects that `values` has exported; it may only call them, and nothing else,
    unless `open_` says that this end has nothing to hide.
    """

    def __init__(self, receive: BinaryIO, send: BinaryIO, open_: bool) -> None:
        self.receive, self.send, self.open = receive, send, open_
        self.values = Values(self)

    def request(self, what: str, *values: Any, **named: Any) -> Any:
        """Ask the other end; its errors are raised here. Its requests are served while waiting for the answer."""
        self._write({"ask": what, "values": self.values.pack(list(values)), "named": self.values.pack(named)})
        while True:
            message = self._read()
            if "ask" not in message:
                return self._answer(message, values)
            self._serve_one(message)

    def _answer(self, message: dict[str, Any], values: tuple[Any, ...]) -> Any:
        for mine, theirs in zip(values, self.values.unpack(message.get("values", {"list": []})), strict=False):
            renew(mine, theirs)  # functions may change lists that they are given
        if "error" in message:
            kind = self.values.unpack(message["error"])
            raise kind(str(message["message"]))
        return self.values.unpack(message["value"])

    def serve(self) -> None:
        """Answer requests until the other end is gone."""
        try:
            while True:
                self._serve_one(self._read())
        except EOFError:
            return

    def _serve_one(self, message: dict[str, Any]) -> None:
        values = self.values.unpack(message["values"])
        named = self.values.unpack(message["named"])
        try:
            result = self._do(str(message["ask"]), values, named)
            answer = {"value": self.values.pack(result)}
        except EOFError:
            raise
        except BaseException as error:
            answer = {"error": self.values.pack_object(type(error)), "message": str(error)[:500]}
        self._write(answer | {"values": self.values.pack(values)})

    def _do(self, what: str, values: list[Any], named: dict[str, Any]) -> Any:
        if what == "call" and (self.open or callable(values[0])):
            return values[0](*values[1:], **named)
        if not self.open:
            raise PermissionError(what)
        doing: dict[str, Callable[..., Any]] = {"get": getattr, "set": setattr, "is": isinstance, "next": next}
        source = operator if hasattr(operator, what) else builtins
        return (doing[what] if what in doing else getattr(source, what))(*values)

    def _write(self, message: dict[str, Any]) -> None:
        self.send.write(json.dumps(message).encode() + b"\n")
        self.send.flush()

    def _read(self) -> dict[str, Any]:
        line = self.receive.readline()
        if not line.endswith(b"\n"):
            raise EOFError("the other process has ended")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("not a message")
        return message
