"""AdamW whose state is a safetensors file, so that going on after a stop gives the weights of never stopping.

The state has the moments and, of weights in lower precision than float32, the float32 masters.
"""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path

import torch
from torch import Tensor

from stages.common.adamw import MOMENTS, MasteredAdamW
from stages.common.checked import reading
from stages.common.errors import StageError
from stages.common.params import AdamW
from stages.common.room import Room
from stages.common.schedule import learning_rate
from stages.common.tensor_file import TensorFile, writing


class OptimizerError(StageError):
    """A stored state that does not fit the policy."""


class StoredAdamW(MasteredAdamW):
    """AdamW and the file of its state. Moments that are read from a file stay there until a step wants them."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], settings: AdamW) -> None:
        super().__init__(parameters, settings)
        self.step_count = 0
        self._stored: TensorFile | None = None  # a file that still has the moments

    def step(self, save_to: Path | None = None) -> tuple[float, float | None]:
        """Clip, step and clear the gradients. Returns the gradient norm before clipping, and the learning rate.

        Gradients that are all zero move nothing, not even by momentum: no step is taken, and there is no rate.

        `save_to`: after this step the state goes there, written while parameter by parameter takes it: moments pass
        from file to file and never are in memory together. Without a step nothing is written.
        """
        rate = learning_rate(self.step_count + 1, self.settings.learning_rate, self.settings.schedule)
        norm = self.clip()
        if not norm.isfinite():
            raise OptimizerError(f"optimizer step {self.step_count + 1}: the gradient's norm is {norm.item()}")
        if norm == 0:
            self.clear()
            return 0.0, None
        if save_to is None:
            self._take_moments()
            self.move(self.masters, rate)
            self.step_count += 1
        else:
            self._write(save_to, rate)
        return float(norm), rate

    def save(self, path: Path) -> None:
        """Moments and masters by parameter name; the number of steps taken is in the metadata."""
        self._write(path, None)

    def _write(self, path: Path, rate: float | None) -> None:
        """Write the state; after a step that is taken on the way, if there is a rate."""
        steps = self.step_count + (rate is not None)
        source = nullcontext() if self._stored is None else reading(self._stored.path)
        rooms = cycle((Room(), Room()))  # one is worked in, what is in the other is hashed
        with source, writing(path, self._layout(steps), {"steps": str(steps)}) as put:
            for name, room in zip(self.masters, rooms, strict=False):
                room.free()
                brought = self._bring(name, room)
                if rate is not None:
                    self.move([name], rate)
                room.taken_until([put(entry, tensor) for entry, tensor in self._state_of(name, steps)])
                if brought or rate is not None:
                    self.let_go(name)
        if rate is not None:
            self.step_count, self._stored = steps, TensorFile(path)

    def _layout(self, steps: int) -> dict[str, Tensor]:
        """What the file has, in its order, by tensors of the same type and shape: parameter by parameter."""
        return {
            entry: master
            for name, master in self.masters.items()
            for entry in [f"{moment}/{name}" for moment in MOMENTS if steps]
            + [f"master/{name}"] * self.has_master(name)
        }

    def _state_of(self, name: str, steps: int) -> Iterator[tuple[str, Tensor]]:
        """The file's entries of a parameter; one that never had a gradient has moments of zero."""
        master, moments = self.masters[name], self.moments(name)
        for moment in MOMENTS if steps else ():
            yield f"{moment}/{name}", torch.zeros_like(master) if moments is None else moments[moment]
        if self.has_master(name):
            yield f"master/{name}", master

    def _bring(self, name: str, room: Room) -> bool:
        """Read the moments of a parameter into the room, if they still are in the file."""
        if self._stored is None:
            return False
        found = room.like(self.masters[name], len(MOMENTS))
        for moment, tensor in zip(MOMENTS, found, strict=True):
            self._stored.read_into(f"{moment}/{name}", tensor, for_good=True)
        self.hold(name, dict(zip(MOMENTS, found, strict=True)), self.step_count)
        return True

    def load(self, path: Path) -> None:
        """Take up what `save` wrote; a state of zero steps has no moments.

        Moments are left in the file until a step wants them: passes have their memory to themselves before that.
        """
        with reading(path):
            stored = TensorFile(path)
            self.step_count = int(stored.metadata["steps"])
            for name, master in self.masters.items():
                own = f"master/{name}"
                wanted = [f"{moment}/{name}" for moment in MOMENTS if self.step_count] + [own] * (own in stored)
                if not all(stored.fits(entry, master) for entry in wanted):
                    raise OptimizerError(
                        f"{path}: no state for parameter {name} of {list(master.shape)}; it belongs to another policy"
                    )
                if own in stored:
                    master.data.copy_(next(stored.read([own])))
        self._stored = stored if self.step_count else None

    def _take_moments(self) -> None:
        """Read the moments that are still in the file."""
        stored, self._stored = self._stored, None
        if stored is None:
            return
        with reading(stored.path):
            for name in self.masters:
                found = stored.read([f"{moment}/{name}" for moment in MOMENTS], for_good=True)
                self.hold(name, dict(zip(MOMENTS, found, strict=True)), self.step_count)

    def snapshot(self, *, moved: bool) -> tuple[dict[str, Tensor], dict[str, float]]:
        """All that the next step depends on, as it is between two backward passes: gradients so far, and, if weights
        have `moved` since training began, these and the moments; and the steps that each parameter has had.

        `save` starts all parameters on one count for the next iteration. Inside one they differ: a parameter without
        a gradient is left out of a step.
        """
        if moved:
            self._take_moments()
        found = {f"grad/{name}": master.grad for name, master in self.masters.items() if master.grad is not None}
        counts: dict[str, float] = {}
        for name, master in self.masters.items() if moved else ():
            found[f"weight/{name}"] = master.detach()
            moments = self.moments(name)
            if moments is not None:
                counts[name] = self.steps_of(name)
                found |= {f"{moment}/{name}": tensor for moment, tensor in moments.items()}
        return found, counts

    def restore(self, tensors: Mapping[str, Tensor], counts: Mapping[str, float], step_count: int) -> None:
        """Put everything where it was when `snapshot` was taken."""
        self.step_count = step_count
        if any(name.startswith("weight/") for name in tensors):
            self._stored = None  # the moments are among the tensors
        for name, master in self.masters.items():
            if f"grad/{name}" in tensors:
                master.grad = tensors[f"grad/{name}"].to(master.device)
            if f"weight/{name}" in tensors:
                master.data.copy_(tensors[f"weight/{name}"])
                self.parameters[name].data.copy_(master)
                self.let_go(name)
            if name in counts:
                self.hold(name, {moment: tensors[f"{moment}/{name}"] for moment in MOMENTS}, counts[name])
