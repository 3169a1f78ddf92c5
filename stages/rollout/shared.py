"""Memory that processes share: a model's tensors lie in it, and nobody has a copy.

The model's own tensors are moved there, so that what an update writes into them is what the processes read next. One
that was replaced since then is found by its address, and moved again. What shares storage goes on doing so.
"""

import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNED = 64


@dataclass(frozen=True)
class Place:
    """Where a tensor's storage lies and how long it is, in bytes, and which part of it is the tensor's. `gradient`:
    whether it could have one, which decides on the kernel that it is multiplied by; None: it is no parameter.
    """

    offset: int
    length: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    first: int
    gradient: bool | None


def places_of(tensors: Sequence[Tensor]) -> list[Place]:
    """One storage behind the other."""
    found, offsets, end = list[Place](), dict[int, int](), 0
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in offsets or not storage.nbytes():
            offsets[storage.data_ptr()] = end
            end += -(-storage.nbytes() // ALIGNED) * ALIGNED
        place = offsets[storage.data_ptr()], storage.nbytes(), tensor.dtype, tuple(tensor.shape), tensor.stride()
        gradient = tensor.requires_grad if isinstance(tensor, torch.nn.Parameter) else None
        found.append(Place(*place, int(tensor.storage_offset()), gradient))
    return found


def size_of(places: Sequence[Place]) -> int:
    return max([ALIGNED, *(place.offset + place.length for place in places)])


def views_of(memory: mmap.mmap, places: Sequence[Place]) -> list[Tensor]:
    """The tensors that lie there."""
    storages: dict[int, Tensor] = {}
    found = []
    for place in places:
        if not place.length:
            found.append(torch.empty_strided(place.shape, place.stride, dtype=place.dtype))
            continue
        if place.offset not in storages:
            storages[place.offset] = torch.frombuffer(
                memory, dtype=torch.uint8, count=place.length, offset=place.offset
            )
        found.append(storages[place.offset].view(place.dtype).as_strided(place.shape, place.stride, place.first))
    return found


class Arena:
    """The memory of one model. Its file has no name, and goes with the last process that has it open or mapped."""

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self.file = _unnamed_file()
        os.ftruncate(self.file, size_of(places))
        self.views = views_of(mmap.mmap(self.file, size_of(places)), places)

    def take_in(self, tensors: Sequence[Tensor]) -> None:
        """Have the tensors lie here; those that do already are left as they are."""
        for tensor, view in zip(tensors, self.views, strict=True):
            if tensor.data_ptr() != view.data_ptr():
                view.copy_(tensor.detach())
                tensor.data = view

    def __del__(self) -> None:
        os.close(self.file)


def _unnamed_file() -> int:
    if sys.platform == "linux":  # in memory, whatever room /dev/shm has
        return os.memfd_create("weights")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
