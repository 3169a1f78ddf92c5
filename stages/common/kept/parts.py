"""Results that are computed part by part, each on its own: batches of samples, forward passes.

A part is a set of named tensors on the CPU, so that one that was kept gives exactly the values of one that was not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from stages.common.kept.keeping import Keeping, current
from stages.common.kept.key import key_of
from stages.common.kept.shard import SUFFIX, read_shard, write_shard

Part = dict[str, Tensor]
BETWEEN = "/"  # a part's number and a tensor's name


@dataclass(frozen=True)
class Work:
    """What is computed: `unit` is what people call a part, `rooms` hold its code beside `stages/common`, and `content`
    (JSON) is what the results depend on beside the model.
    """

    kind: str
    unit: str
    rooms: tuple[str, ...]
    model: Any
    content: Mapping[str, Any]

    @property
    def at_work(self) -> tuple[str, ...]:
        return (*self.rooms, "common")

    def key(self, keeping: Keeping) -> str:
        return key_of(keeping.code_of(self.at_work), self.model, {"kind": self.kind, **self.content})

    def folder(self, keeping: Keeping, key: str) -> Path:
        return keeping.folder / f"{self.kind}.{key}"


@dataclass
class Shelf:
    """The parts of one work that are finished and in no file yet."""

    folder: Path
    key: str
    parts: dict[int, Part] = field(default_factory=dict)

    def write(self) -> None:
        if self.parts:
            numbers = sorted(self.parts)
            path = self.folder / f"{numbers[0]:06d}-{numbers[-1]:06d}{SUFFIX}"
            write_shard(path, self.key, numbers, flat(self.parts))
            self.parts.clear()


def flat(parts: Mapping[int, Part]) -> dict[str, Tensor]:
    return {f"{number}{BETWEEN}{name}": tensor for number, part in parts.items() for name, tensor in part.items()}


def read_parts(folder: Path, key: str, keeping: Keeping) -> dict[int, Part]:
    """All that is kept under the key and whole."""
    found: dict[int, Part] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        shard = read_shard(path, key)
        if shard is None:
            keeping.tell(f"{path} was damaged: what it held is computed again")
            continue
        numbers, tensors = shard
        found |= {number: {} for number in numbers}
        for name, tensor in tensors.items():
            number, _, own = name.partition(BETWEEN)
            found[int(number)][own] = tensor
    return found


def in_parts(work: Work, count: int, compute: Callable[[int], Part]) -> Iterator[Part]:
    """Parts 0 to `count` - 1, in order: those that were kept, and the others computed, and kept."""
    shelf, kept = shelf_of(work, count)
    for number in range(count):
        part = kept.pop(number, None)
        if part is None:
            part = compute(number)
            put(shelf, number, part)
        yield part


def in_any_order(
    work: Work, count: int, compute: Callable[[Sequence[int]], Iterator[tuple[int, Part]]]
) -> Iterator[tuple[int, Part]]:
    """Parts 0 to `count` - 1 with their numbers: those that were kept, and then the others, as `compute` has them
    finished. It is called with their numbers, if there are any.
    """
    shelf, kept = shelf_of(work, count)
    missing = [number for number in range(count) if number not in kept]
    yield from sorted(kept.items())
    for number, part in compute(missing) if missing else ():
        put(shelf, number, part)
        yield number, part


def shelf_of(work: Work, count: int) -> tuple[Shelf | None, dict[int, Part]]:
    """Where finished parts go, and those that an earlier run of the stage has kept; None where no stage runs."""
    keeping = current()
    if keeping is None:
        return None, {}
    key = work.key(keeping)
    shelf = Shelf(work.folder(keeping, key), key)
    kept = {number: part for number, part in read_parts(shelf.folder, key, keeping).items() if number < count}
    if kept:
        keeping.journal.resumed(len(kept), count, work.unit)
    keeping.add_flush(key, work.at_work, shelf.write)
    return shelf, kept


def put(shelf: Shelf | None, number: int, part: Part) -> None:
    """Keep a part that is finished, if that is due, or by and by."""
    keeping = current()
    if shelf is not None and keeping is not None:
        shelf.parts[number] = part
        if keeping.due():
            keeping.flush()
