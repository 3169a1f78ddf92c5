"""AdamW whose state is a safetensors file, so that going on after a stop gives the weights of never stopping.

Weights in lower precision than float32 have a float32 master copy in the state: an update of 1e-5 would vanish in
bfloat16. The policy that is saved, sampled from and differentiated is the rounded one.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from stages.common.checked import reading
from stages.common.durable import drop_pages
from stages.common.errors import StageError
from stages.common.params import AdamW, Schedule
from stages.common.tensor_file import TensorFile, write_tensors

MOMENTS = ("exp_avg", "exp_avg_sq")


class OptimizerError(StageError):
    """A stored state that does not fit the policy."""


def learning_rate(step: int, peak: float, schedule: Schedule) -> float:
    """Rate of optimizer step `step`, counted from 1 over the whole run; independent of how many are planned."""
    warm = min(1.0, step / schedule.warmup) if schedule.warmup else 1.0
    if schedule.horizon is None:
        return peak * warm
    done = (step - max(1, schedule.warmup)) / (schedule.horizon - max(1, schedule.warmup))
    return peak * min(warm, 1.0 - (1.0 - schedule.floor) * min(1.0, max(0.0, done)))


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

    def step(self) -> tuple[float, float | None]:
        """Clip, step and clear the gradients. Returns the gradient norm before clipping, and the learning rate.

        Gradients that are all zero move nothing, not even by momentum: no step is taken, and there is no rate.
        """
        rate = learning_rate(self.step_count + 1, self.settings.learning_rate, self.settings.schedule)
        self.adamw.param_groups[0]["lr"] = rate
        norm = torch.nn.utils.clip_grad_norm_(self.masters.values(), self.settings.max_grad_norm)
        if not norm.isfinite():
            raise OptimizerError(f"optimizer step {self.step_count + 1}: the gradient's norm is {norm.item()}")
        if norm == 0:
            self.adamw.zero_grad(set_to_none=True)
            return 0.0, None
        self._take_moments()
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        self.step_count += 1
        for name, parameter in self.parameters.items():
            if self.masters[name] is not parameter:
                parameter.data.copy_(self.masters[name])
        return float(norm), rate

    def save(self, path: Path) -> None:
        """Moments and masters by parameter name; the number of steps taken is in the metadata."""
        self._take_moments()
        state: dict[str, Tensor] = {}
        for name, master in self.masters.items():
            for moment in MOMENTS:
                if self.step_count:  # a parameter that never had a gradient has no moments yet: zeros
                    held = self.adamw.state[master].get(moment)
                    state[f"{moment}/{name}"] = torch.zeros_like(master) if held is None else held
            if master is not self.parameters[name]:
                state[f"master/{name}"] = master
        write_tensors(state, path, {"steps": str(self.step_count)})

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
                found = stored.read([f"{moment}/{name}" for moment in MOMENTS])
                moments = {moment: tensor.to(master.device) for moment, tensor in zip(MOMENTS, found, strict=True)}
                self.adamw.state[master] = {"step": self._count(master, self.step_count), **moments}
        drop_pages(stored.path)

    @staticmethod
    def _count(master: Tensor, steps: float) -> Tensor:
        """A parameter's number of steps as the fused kernel wants it."""
        return torch.tensor(float(steps), device=master.device)

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
                moments = {moment: tensors[f"{moment}/{name}"].to(master.device) for moment in MOMENTS}
                self.adamw.state[master] = {"step": self._count(master, counts[name]), **moments}
