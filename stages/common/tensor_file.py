"""Safetensors files read and written tensor by tensor.

The library maps a file that it reads, and pages of it count as the process's memory while they are copied: an optimizer
state of one gigabyte would take two. It wants all tensors in memory at once, on the CPU, where a state may be larger
than what is free; and it holds back all threads while it writes, where this hashes what is written.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stages.common.durable import drop_pages
from stages.common.errors import StageError
from stages.common.fingerprint import written

DTYPES = {  # in the order in which the library writes them
    "I64": torch.int64,
    "F64": torch.float64,
    "F32": torch.float32,
    "I32": torch.int32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LENGTH = 8  # bytes that say how long the header is

Put = Callable[[str, Tensor], "Future[None]"]


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

    def fits(self, name: str, tensor: Tensor) -> bool:
        """Whether the file has a tensor of that name, in the type and shape of this one."""
        entry: dict[str, Any] = self._entries.get(name, {})
        return bool(entry.get("dtype") == NAMES.get(tensor.dtype) and entry.get("shape") == list(tensor.shape))

    def read(self, names: Iterable[str], *, for_good: bool = False) -> Iterator[Tensor]:
        """The tensors of these names, in their order, one at a time."""
        for name in names:
            entry = self._entries[name]
            found = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
            self.read_into(name, found, for_good=for_good)
            yield found

    def read_into(self, name: str, found: Tensor, *, for_good: bool = False) -> None:
        """Fill a tensor that fits and lies contiguously on the CPU. `for_good`: it will hardly be read again."""
        content, done, start = _bytes_of(found), 0, self._entries[name]["data_offsets"][0]
        with self.path.open("rb", buffering=0) as file:
            file.seek(self._start + start)
            while done < len(content):
                count = file.readinto(content[done:])
                if not count:
                    raise StageError(f"{self.path}: ends within {name}; run the stage that makes it again")
                done += count
            if for_good:
                drop_pages(file, self._start + start, len(content))


@contextmanager
def writing(path: Path, like: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterator[Put]:
    """Write a file of tensors of the names, types and shapes of `like`, each put there by its name, in this order.

    What putting returns is done when the tensor has been hashed, too, and may change. The file's hash is known in the
    end. With names in the library's order it is the file that the library would write, to the letter.
    """
    digest, wanted, hashed = blake2b(digest_size=16), iter(like.items()), list[Future[None]]()
    with path.open("xb", buffering=0) as file, ThreadPoolExecutor(1) as beside:

        def put(content: memoryview | bytes) -> Future[None]:
            hashed.append(beside.submit(digest.update, content))
            done = 0
            while done < len(content):
                done += file.write(content[done:])
            return hashed[-1]

        def put_next(name: str, tensor: Tensor) -> Future[None]:
            next_name, model = next(wanted)
            assert (name, tensor.dtype, tensor.shape) == (next_name, model.dtype, model.shape)
            return put(_bytes_of(tensor.detach().cpu().contiguous()))

        put(_header(like, metadata))
        yield put_next
        assert next(wanted, None) is None
        for future in hashed:
            future.result()
    written(path, digest.hexdigest())


def _bytes_of(tensor: Tensor) -> memoryview:
    found: memoryview = tensor.reshape(-1).view(torch.uint8).numpy().data
    return found


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Where each tensor lies, as JSON that ends at a multiple of eight bytes."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH)
    return len(text).to_bytes(LENGTH, "little") + text
