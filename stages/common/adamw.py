"""AdamW over named parameters, with float32 masters where the parameters are not float32.

An update of 1e-5 would vanish in bfloat16. The policy that is saved, sampled from and differentiated is the rounded
one.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from stages.common.params import AdamW

MOMENTS = ("exp_avg", "exp_avg_sq")


class MasteredAdamW:
    """torch's AdamW, some parameters at a time, and their moments."""

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], settings: AdamW) -> None:
        self.parameters = dict(parameters)
        self.settings = settings
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

    def clip(self) -> Tensor:
        """Bound the gradients' norm; returns what it was."""
        return torch.nn.utils.clip_grad_norm_(self.masters.values(), self.settings.max_grad_norm)

    def clear(self) -> None:
        """Forget the gradients."""
        self.adamw.zero_grad(set_to_none=True)

    def move(self, names: Collection[str], rate: float) -> None:
        """Let these parameters take a step at this rate by their gradients, which go."""
        group = self.adamw.param_groups[0]
        group["lr"], group["params"] = rate, [self.masters[name] for name in names]
        try:
            self.adamw.step()
            self.adamw.zero_grad(set_to_none=True)
        finally:
            group["params"] = list(self.masters.values())
        for name in names:
            if self.has_master(name):
                self.parameters[name].data.copy_(self.masters[name])

    def has_master(self, name: str) -> bool:
        """Whether the parameter is not its own."""
        return self.masters[name] is not self.parameters[name]

    def moments(self, name: str) -> dict[str, Tensor] | None:
        """A parameter's moments; None: it never had a gradient, or they are elsewhere."""
        state = self.adamw.state.get(self.masters[name])
        return {moment: state[moment] for moment in MOMENTS} if state else None

    def steps_of(self, name: str) -> float:
        """How many steps the parameter has taken, of those that it has moments of."""
        return float(self.adamw.state[self.masters[name]]["step"])

    def hold(self, name: str, moments: Mapping[str, Tensor], steps: float) -> None:
        """Take up the moments of a parameter that has taken so many steps, in the form that the fused kernel wants."""
        master = self.masters[name]
        count = torch.tensor(float(steps), device=master.device)
        self.adamw.state[master] = {"step": count} | {moment: moments[moment].to(master.device) for moment in MOMENTS}

    def let_go(self, name: str) -> None:
        """Forget the moments of a parameter."""
        self.adamw.state.pop(self.masters[name], None)
