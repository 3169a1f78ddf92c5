"""Memory that is used again and again, as fresh pages of it cost more than what is done in them."""

from collections.abc import Iterable
from concurrent.futures import Future

import torch
from torch import Tensor


class Room:
    """Room on the CPU for a few tensors of one shape at a time, and what must be done before others may have it."""

    def __init__(self) -> None:
        self._held = torch.empty(0, dtype=torch.uint8)
        self._until: list[Future[None]] = []

    def taken_until(self, done: Iterable[Future[None]]) -> None:
        """Nobody else gets the room before all this is done."""
        self._until = list(done)

    def free(self) -> None:
        """Wait until it is."""
        for future in self._until:
            future.result()
        self._until = []

    def like(self, tensor: Tensor, number: int) -> list[Tensor]:
        """So many tensors of that type and shape, with any content."""
        self.free()
        size = tensor.numel() * tensor.element_size()
        if len(self._held) < number * size:
            self._held = torch.empty(number * size, dtype=torch.uint8)
        parts = [self._held[i * size : (i + 1) * size] for i in range(number)]
        return [part.view(tensor.dtype).view(tensor.shape) for part in parts]
