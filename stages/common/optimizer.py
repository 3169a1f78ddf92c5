"""AdamW whose state is a safetensors file, so that going on after a stop gives the weights of never stopping.

Weights in lower precision than float32 have a float32 master copy in the state: an update of 1e-5 would vanish in
bfloat16. The policy that is saved, sampled from and differentiated is the rounded one.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import cycle
from pathlib import Path

import torch
from torch import Tensor

from stages.common.checked import reading
from stages.common.errors import StageError
from stages.common.params import AdamW
from stages.common.room import Room
from stages.common.schedule import learning_rate
from stages.common.tensor_file import TensorFile, writing

MOMENTS = ("exp_avg", "exp_avg_sq")


class OptimizerError(StageError):
    """A stored state that does not fit the policy."""


class StoredAdamW:
    """AdamW over named parameters, with float32 masters where the parameters are not float32."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], settings: AdamW) -> None:
        self.parameters = dict(parameters)
        self.settings = settings
        self.step_count = 0
        self._stored: TensorFile | None = None  # a file that still has the moments
        for parameter in self.parameters.values():
            parameter.grad = None  # an update that failed half-way in this process may have left some
        self.masters = {
            name: parameter if parameter.dtype == torch.float32 else parameter.detach().float()
            for name, parameter in self.parameters.items()
        }
        self.adamw = torch.optim.AdamW(
            self.masters.values(),
            lr=settings.learning_rate,
            betas=(settings.betas[0], settings.betas[1]),
            eps=settings.eps,
            weight_decay=settings.weight_decay,
            fused=True,  # without temporaries of the size of the largest parameter
        )

    def collect_gradients(self) -> None:
        """Add the gradients of a micro-batch to the float32 masters'; call after each backward pass."""
        for name, parameter in self.parameters.items():
            master = self.masters[name]
            if master is not parameter and parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    def step(self, save_to: Path | None = None) -> tuple[float, float | None]:
        """Clip, step and clear the gradients. Returns the gradient norm before clipping, and the learning rate.

        Gradients that are all zero move nothing, not even by momentum: no step is taken, and there is no rate.

        `save_to`: after the last step the state goes there, written while parameter by parameter takes the step:
        moments pass from file to file and never are in memory together. Without a step nothing is written.
        """
        rate = learning_rate(self.step_count + 1, self.settings.learning_rate, self.settings.schedule)
        self.adamw.param_groups[0]["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(self.masters.values(), self.settings.max_grad_norm)
        if not norm.isfinite():
            raise OptimizerError(f"optimizer step {self.step_count + 1}: the gradient's norm is {norm.item()}")
        if norm == 0:
            self.adamw.zero_grad(set_to_none=True)
            return 0.0, None
        if save_to is None:
            self._take_moments()
            self._step(self.masters)
            self.step_count += 1
        else:
            self._write(save_to, self.step_count + 1)
        return float(norm), rate

    def _step(self, names: Collection[str]) -> None:
        """Move these parameters by their gradients, which go."""
        masters = [self.masters[name] for name in names]
        self.adamw.param_groups[0]["params"] = masters
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        for name, master in zip(names, masters, strict=True):
            if self.parameters[name] is not master:
                self.parameters[name].data.copy_(master)

    def save(self, path: Path) -> None:
        """Moments and masters by parameter name; the number of steps taken is in the metadata."""
        self._write(path, self.step_count)

    def _write(self, path: Path, steps: int) -> None:
        """Write the state after so many steps, one of which may be taken on the way."""
        taking, rooms = steps > self.step_count, cycle((Room(), Room()))  # one is worked in, one is hashed
        with writing(path, self._layout(steps), {"steps": str(steps)}) as put:
            for name, room in zip(self.masters, rooms, strict=False):
                brought = self._bring(name, room)
                if taking:
                    self._step([name])
                room.taken_until([put(entry, tensor) for entry, tensor in self._state_of(name, steps)])
                if brought or taking:
                    self.adamw.state.pop(self.masters[name], None)
        self.adamw.param_groups[0]["params"] = list(self.masters.values())
        if taking:
            self.step_count, self._stored = steps, TensorFile(path)

    def _layout(self, steps: int) -> dict[str, Tensor]:
        """What the file has, in its order, by tensors of the same type and shape: parameter by parameter."""
        return {
            entry: master
            for name, master in self.masters.items()
            for entry in [f"{moment}/{name}" for moment in MOMENTS if steps]
            + [f"master/{name}"] * (master is not self.parameters[name])
        }

    def _state_of(self, name: str, steps: int) -> Iterator[tuple[str, Tensor]]:
        """The file's entries of a parameter; one that never had a gradient has no moments yet: zeros."""
        master = self.masters[name]
        state = self.adamw.state.get(master, {})
        for moment in MOMENTS if steps else ():
            yield f"{moment}/{name}", state[moment] if state else torch.zeros_like(master)
        if master is not self.parameters[name]:
            yield f"master/{name}", master

    def _bring(self, name: str, room: Room) -> bool:
        """Read the moments of a parameter into the room, if they still are in the file."""
        if self._stored is None:
            return False
        master = self.masters[name]
        found = room.like(master, len(MOMENTS))
        with reading(self._stored.path):
            for moment, tensor in zip(MOMENTS, found, strict=True):
                self._stored.read_into(f"{moment}/{name}", tensor, for_good=True)
        self._hold(master, dict(zip(MOMENTS, found, strict=True)), self.step_count)
        return True

    def _hold(self, master: Tensor, moments: Mapping[str, Tensor], steps: float) -> None:
        """Moments of a parameter that has had so many steps, as the fused kernel wants them."""
        count = torch.tensor(float(steps), device=master.device)
        on_device = {moment: moments[moment].to(master.device) for moment in MOMENTS}
        self.adamw.state[master] = {"step": count, **on_device}

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
            for name, master in self.masters.items():
                found = stored.read([f"{moment}/{name}" for moment in MOMENTS], for_good=True)
                self._hold(master, dict(zip(MOMENTS, found, strict=True)), self.step_count)

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
            state = self.adamw.state.get(master)
            if state:
                counts[name] = float(state["step"])
                found |= {f"{moment}/{name}": state[moment] for moment in MOMENTS}
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
                self.adamw.state.pop(master, None)
            if name in counts:
                self._hold(master, {moment: tensors[f"{moment}/{name}"] for moment in MOMENTS}, counts[name])
