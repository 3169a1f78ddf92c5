"""Calling functions of another process with plain values, when neither process may trust the other.

Messages are JSON lines. Numbers, texts, bytes, ranges, and lists, tuples, sets and dicts of them travel as copies, in
the exact built-in type (an `int` whose class says that it equals everything arrives as an int). Anything else stays
where it is and is represented by a `Remote`. Nothing that arrives is ever executed.

A `Remote` may be called, indexed, iterated, converted, and asked for attributes; all of that is answered by the other
process. What it may not do is decide a comparison with a plain value: `remote == 5` is false, `remote < 5` a TypeError,
and an operation with a plain value may only give another `Remote`. Else an object that claims to equal everything, or
whose difference to everything is 0, would pass any test.

Both processes load this file by themselves, so that only the standard library is imported.
"""

import builtins
import json
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, BinaryIO

COPIED = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
WRITTEN: dict[str, Any] = {"fraction": Fraction, "decimal": Decimal, "complex": complex, "bytes": bytes.fromhex}
WRITTEN["int"] = lambda text: int(text, 16)  # decimal digits are limited in number, these are not


class Peer:
    """One end. `exported` are the objects that the other end may use by number; it may only call them, and nothing
    else, unless `open_` says that this end has nothing to hide.
    """

    def __init__(self, receive: BinaryIO, send: BinaryIO, open_: bool) -> None:
        self.receive, self.send, self.open = receive, send, open_
        self.exported: list[Any] = []
        self.classes: dict[int, type[BaseException]] = {}

    # Values

    def pack(self, value: Any) -> Any:
        """As JSON."""
        if value is None or type(value) in (bool, str, float):
            return value
        if isinstance(value, int):
            number = int.__add__(value, 0)
            return number if number.bit_length() < 64 else {"int": hex(number)}
        if isinstance(value, (str, float)):  # the built-in value inside an object of a subclass
            return str.__str__(value) if isinstance(value, str) else float.__add__(value, 0.0)
        for name, kind_ in COPIED.items():
            if isinstance(value, kind_):
                return {name: [self.pack(one) for one in kind_.__iter__(value)]}
        if isinstance(value, dict):
            return {"dict": [[self.pack(k), self.pack(v)] for k, v in dict.items(value)]}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": bytes(value).hex()}
        for name, kind in (("fraction", Fraction), ("decimal", Decimal), ("complex", complex)):
            if type(value) is kind:
                return {name: str(value)}
        if type(value) is range:
            return {"range": [value.start, value.stop, value.step]}
        return self._pack_object(value)

    def _pack_object(self, value: Any) -> Any:
        if isinstance(value, Remote):
            return {"yours": _number(value)}
        numbers = [i for i, known in enumerate(self.exported) if known is value]
        if not numbers:
            self.exported.append(value)
            numbers = [len(self.exported) - 1]
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"exception": numbers[0], "name": value.__name__, "bases": _lineage(value)}
        return {"object": numbers[0]}

    def unpack(self, packed: Any) -> Any:
        """The value; what is not of the form that `pack` gives is a ValueError."""
        if not isinstance(packed, dict):
            if isinstance(packed, list):
                raise ValueError("not a packed value")
            return packed
        name, held = next(iter(packed.items()))
        if name in COPIED:
            return COPIED[name](self.unpack(one) for one in held)
        if name == "dict":
            return {self.unpack(k): self.unpack(v) for k, v in held}
        if name in WRITTEN:
            return WRITTEN[name](held)
        if name == "range":
            return range(*held)
        if name == "yours":
            return self.exported[int(held)]
        if name == "exception":
            return self._exception(int(held), str(packed["name"]), list(packed["bases"]))
        return Remote(self, int(held))

    def _exception(self, number: int, name: str, lineage: list[str]) -> type[BaseException]:
        """A class of this process that stands for one of the other's, so that it can be caught here."""
        if number not in self.classes:
            self.classes[number] = type(name, (_builtin_error(lineage),), {})
        return self.classes[number]

    # Messages

    def request(self, what: str, *values: Any, **named: Any) -> Any:
        """Ask the other end; its errors are raised here. Its requests are served while waiting for the answer."""
        self._write({"ask": what, "values": self.pack(list(values)), "named": self.pack(named)})
        while True:
            message = self._read()
            if "ask" not in message:
                return self._answer(message, values)
            self._serve_one(message)

    def _answer(self, message: dict[str, Any], values: tuple[Any, ...]) -> Any:
        for mine, theirs in zip(values, self.unpack(message.get("values", {"list": []})), strict=False):
            _renew(mine, theirs)  # functions may change lists that they are given
        if "error" in message:
            kind = self.unpack(message["error"])
            raise kind(str(message["message"]))
        return self.unpack(message["value"])

    def serve(self) -> None:
        """Answer requests until the other end is gone."""
        try:
            while True:
                self._serve_one(self._read())
        except EOFError:
            return

    def _serve_one(self, message: dict[str, Any]) -> None:
        values = self.unpack(message["values"])
        named = self.unpack(message["named"])
        try:
            result = self._do(str(message["ask"]), values, named)
            answer = {"value": self.pack(result)}
        except EOFError:
            raise
        except BaseException as error:
            answer = {"error": self._pack_object(type(error)), "message": str(error)[:500]}
        self._write(answer | {"values": self.pack(values)})

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


def _lineage(kind: type) -> list[str]:
    return [one.__name__ for one in kind.__mro__]


def _builtin_error(lineage: list[str]) -> type[Exception]:
    """The nearest ancestor that is an error of Python's own. Exits of the other process are errors here."""
    for name in lineage:
        found = getattr(builtins, name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return RuntimeError


def _renew(mine: Any, theirs: Any) -> None:
    """Bring a list, dict or set that was given away up to what the other end has made of it."""
    if type(mine) is list and type(theirs) is list:
        for one, other in zip(mine, theirs, strict=False):
            _renew(one, other)
        if mine != theirs:
            mine[:] = theirs
    elif type(mine) in (dict, set) and type(mine) is type(theirs) and mine != theirs:
        mine.clear()
        mine.update(theirs)


def _peer(remote: Any) -> Peer:
    return object.__getattribute__(remote, "_peer")  # type: ignore[no-any-return]


def _number(remote: Any) -> int:
    return object.__getattribute__(remote, "_number")  # type: ignore[no-any-return]


class Remote:
    """An object of the other process."""

    __slots__ = ("_mixed", "_number", "_peer")

    def __init__(self, peer: Peer, number: int) -> None:
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)
        object.__setattr__(self, "_mixed", False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _peer(self).request("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _peer(self).request("set", self, name, value)

    def __call__(self, *values: Any, **named: Any) -> Any:
        return _peer(self).request("call", self, *values, **named)

    def __instancecheck__(self, other: Any) -> bool:
        return isinstance(other, Remote) and bool(_peer(self).request("is", other, self))

    def __hash__(self) -> int:
        return hash(_peer(self).request("hash", self))


def _asked(what: str, kind: type | None = None) -> Callable[..., Any]:
    """A conversion. Not of what came out of an operation with a plain value: that may be the expected one."""

    def method(self: Remote, *values: Any) -> Any:
        if object.__getattribute__(self, "_mixed"):
            raise TypeError(f"{what} of what an object of the tested code made of a plain value")
        result = _peer(self).request(what, self, *values)
        return result if kind is None else kind(result)

    return method


def _operation(what: str, swapped: bool = False) -> Callable[..., Any]:
    """With another object; or with a plain value, if the result is an object."""

    def method(self: Remote, other: Any) -> Any:
        result = _peer(self).request(what, *((other, self) if swapped else (self, other)))
        if isinstance(other, Remote):
            return result
        if not isinstance(result, Remote):
            raise TypeError(f"{what} of an object of the tested code with a plain value gives no object")
        object.__setattr__(result, "_mixed", True)
        return result

    return method


def _comparison(what: str) -> Callable[..., Any]:
    def method(self: Remote, other: Any) -> Any:
        return bool(_peer(self).request(what, self, other)) if isinstance(other, Remote) else NotImplemented

    return method


def _complete() -> None:
    for what, kind in (("len", int), ("str", str), ("repr", str), ("bool", bool), ("int", int), ("float", float)):
        setattr(Remote, f"__{what}__", _asked(what, kind))
    for what in ("iter", "next", "getitem", "setitem", "delitem", "neg", "abs"):
        setattr(Remote, f"__{what}__", _asked(what))
    for what in ("eq", "lt", "le", "gt", "ge"):
        setattr(Remote, f"__{what}__", _comparison(what))
    for what in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
        setattr(Remote, f"__{what}__", _operation(what))
        setattr(Remote, f"__r{what}__", _operation(what, swapped=True))


_complete()
