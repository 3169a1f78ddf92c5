"""The key-value cache of a batch whose rows come and go.

Rows are aligned at their last token: a shorter one has padding before it. Only layers that hold the keys and values of
all tokens can be joined so; a sliding window or a recurrent state has no columns to align.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

ROOM = 64  # columns


class RoomyLayer(DynamicLayer):  # type: ignore[misc]  # the library has no types
    """A layer with room for the next tokens. A DynamicLayer copies everything that it holds for each of them."""

    def __init__(self) -> None:
        super().__init__()
        self._room: tuple[Tensor, Tensor] | None = None  # buffers, of which `keys` and `values` are the first columns
        self._shown: tuple[Tensor | None, Tensor | None] = (None, None)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.get_seq_length():
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return key_states, value_states
        before, after = self.get_seq_length(), self.get_seq_length() + key_states.shape[-2]
        same = self._room is not None and self.keys is self._shown[0] and self.values is self._shown[1]
        if not same or self._room is None or after > self._room[0].shape[-2]:  # others were put in, or it is full
            self._room = with_room(self.keys, after + ROOM), with_room(self.values, after + ROOM)
        for buffer, states in zip(self._room, (key_states, value_states), strict=True):
            buffer[:, :, before:after] = states
        self.keys, self.values = (buffer[:, :, :after] for buffer in self._room)
        self._shown = self.keys, self.values
        return self.keys, self.values


def with_room(held: Tensor, columns: int) -> Tensor:
    """A tensor of so many columns that begins with those held."""
    made = held.new_empty(*held.shape[:2], columns, held.shape[3])
    made[:, :, : held.shape[2]] = held
    return made


def can_join(model: Any) -> bool:
    """Whether every layer of the model's cache holds all tokens."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def new_cache(model: Any) -> DynamicCache:
    """An empty cache, with room for the next tokens where its layers can have some."""
    cache = DynamicCache(config=model.config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def select(cache: DynamicCache, row_B: Tensor, skip: int) -> None:
    """Keep these rows (a row may be there more than once), without the first `skip` columns."""
    if skip == 0:
        cache.batch_select_indices(row_B)
        return
    for layer in cache.layers:
        layer.keys, layer.values = (held[row_B, :, skip:] for held in (layer.keys, layer.values))


def join(cache: DynamicCache, other: DynamicCache) -> None:
    """Add the rows of another cache; the narrower one gets columns of padding before its own."""
    for layer, more in zip(cache.layers, other.layers, strict=True):
        layer.keys = joined(layer.keys, more.keys)
        layer.values = joined(layer.values, more.values)


def joined(one: Tensor, other: Tensor) -> Tensor:
    width = max(one.shape[2], other.shape[2])
    return torch.cat([pad(held, (0, 0, width - held.shape[2], 0)) for held in (one, other)])
