"""A model as two things: what it is made of (its skeleton, pickled) and its tensors, apart.

So a copy in another precision is built without loading anything, and processes that map the same memory have the model
without a copy of their own: whatever architecture it is, with its adapter, and whether that is on or off.
"""

import io
import pickle
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class _Taking(pickle.Pickler):
    """Writes numbers in place of tensors, and notes them. What is one tensor, such as tied weights, stays one."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor):
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return self._numbers[id(obj)]


class _Giving(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: int) -> Tensor:
        return self._tensors[pid]


def taken_apart(model: Any) -> tuple[bytes, list[Tensor]]:
    """The skeleton, and the model's own tensors in the order of their numbers."""
    file = io.BytesIO()
    pickler = _Taking(file)
    pickler.dump(model)
    return file.getvalue(), pickler.tensors


def put_together(skeleton: bytes, tensors: Sequence[Tensor]) -> Any:
    """A model of these tensors. They must be what the original has: parameters in the places of parameters."""
    return _Giving(io.BytesIO(skeleton), tensors).load()


def as_original(tensor: Tensor, original: Tensor) -> Tensor:
    """A parameter if the original is one. One that could have a gradient is multiplied by another kernel, even where
    none is computed: it is to be like the original in that, too.
    """
    if isinstance(original, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad=original.requires_grad)
    return tensor


def copied(model: Any, dtype: torch.dtype) -> Any:
    """The model with its weights in another precision, in memory of its own; buffers stay as they are, as positions do
    in a model that is loaded in that precision.
    """
    skeleton, tensors = taken_apart(model)
    return put_together(skeleton, [as_original(_in_precision(tensor, dtype), tensor) for tensor in tensors])


def _in_precision(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    is_weight = isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point()
    return tensor.detach().to(dtype if is_weight else tensor.dtype, copy=True)
