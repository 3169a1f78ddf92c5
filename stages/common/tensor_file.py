"""Safetensors files read tensor by tensor into memory of their own.

The library maps a file, and pages of it count as the process's memory while they are copied: an optimizer state of one
gigabyte would take two.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from stages.common.errors import StageError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
LENGTH = 8  # bytes that say how long the header is


class TensorFile:
    """The header of a file: its metadata, and where each tensor lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH), "little")
            try:
                entries = json.loads(file.read(length))
            except ValueError as error:
                raise StageError(f"{path}: not a file of tensors: {error}") from None
        self.metadata: dict[str, str] = entries.pop("__metadata__", {})
        self._start = LENGTH + length
        self._entries = entries

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def read(self, names: Iterable[str]) -> Iterator[Tensor]:
        """The tensors of these names, in their order, one at a time."""
        with self.path.open("rb", buffering=0) as file:
            for name in names:
                entry = self._entries[name]
                found = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
                content = found.reshape(-1).view(torch.uint8).numpy().data
                file.seek(self._start + entry["data_offsets"][0])
                done = 0
                while done < len(content):
                    count = file.readinto(content[done:])
                    if not count:
                        raise StageError(f"{self.path}: ends within {name}; run the stage that makes it again")
                    done += count
                yield found
