"""Values on their way between two processes that do not trust each other.

Numbers, texts, bytes, ranges, and lists, tuples, sets and dicts of them travel as copies, as JSON, in the exact
built-in type (an `int` whose class says that it equals everything arrives as an int). Anything else stays where it is,
and its number travels: `Values` knows it by that, and the other end makes a `Remote` of it. Nothing that arrives is
ever executed.

Both processes load this file by themselves, so that only the standard library is imported.
"""

import builtins
from decimal import Decimal
from fractions import Fraction
from typing import Any

from stages.score.remote import Asking, Remote, number_of

COPIED = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
WRITTEN: dict[str, Any] = {"fraction": Fraction, "decimal": Decimal, "complex": complex, "bytes": bytes.fromhex}
WRITTEN["int"] = lambda text: int(text, 16)  # decimal digits are limited in number, these are not


class Values:
    """`exported` are the objects that the other end may use by number; `peer` asks the other end about its own."""

    def __init__(self, peer: Asking) -> None:
        self.peer = peer
        self.exported: list[Any] = []
        self.classes: dict[int, type[BaseException]] = {}

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
        return self.pack_object(value)

    def pack_object(self, value: Any) -> Any:
        """An object by its number; a class of errors with its name, so that it can be caught at the other end."""
        if isinstance(value, Remote):
            return {"yours": number_of(value)}
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
        return Remote(self.peer, int(held))

    def _exception(self, number: int, name: str, lineage: list[str]) -> type[BaseException]:
        """A class of this process that stands for one of the other's, so that it can be caught here."""
        if number not in self.classes:
            self.classes[number] = type(name, (_builtin_error(lineage),), {})
        return self.classes[number]


def _lineage(kind: type) -> list[str]:
    return [one.__name__ for one in kind.__mro__]


def _builtin_error(lineage: list[str]) -> type[Exception]:
    """The nearest ancestor that is an error of Python's own. Exits of the other process are errors here."""
    for name in lineage:
        found = getattr(builtins, name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return RuntimeError


def renew(mine: Any, theirs: Any) -> None:
    """Bring a list, dict or set that was given away up to what the other end has made of it."""
    if type(mine) is list and type(theirs) is list:
        for one, other in zip(mine, theirs, strict=False):
            renew(one, other)
        if mine != theirs:
            mine[:] = theirs
    elif type(mine) in (dict, set) and type(mine) is type(theirs) and mine != theirs:
        mine.clear()
        mine.update(theirs)
