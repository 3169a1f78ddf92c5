"""What stands here for an object of another process that is not trusted.

A `Remote` may be called, indexed, iterated, converted, and asked for attributes; all of that is answered by the other
process (stages/score/peer.py). What it may not do is decide a comparison with a plain value: `remote == 5` is false,
`remote < 5` a TypeError, and an operation with a plain value may only give another `Remote`. Else an object that claims
to equal everything, or whose difference to everything is 0, would pass any test.

Both processes load this file by themselves, so that only the standard library is imported.
"""

from collections.abc import Callable
from typing import Any, Protocol


class Asking(Protocol):
    """The end of the channel that asks the other process."""

    def request(self, what: str, *values: Any, **named: Any) -> Any: ...


def _peer(remote: Any) -> Asking:
    return object.__getattribute__(remote, "_peer")  # type: ignore[no-any-return]


def number_of(remote: Any) -> int:
    return object.__getattribute__(remote, "_number")  # type: ignore[no-any-return]


class Remote:
    """An object of the other process."""

    __slots__ = ("_mixed", "_number", "_peer")

    def __init__(self, peer: Asking, number: int) -> None:
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
