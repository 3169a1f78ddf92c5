"""Linear layers in float32 on a CPU, by oneDNN.

torch multiplies float32 matrices on x86 by MKL, which uses the wide vectors (AVX-512) of one maker's processors only.
oneDNN, which torch brings along and takes for bfloat16, uses them wherever they are. Products are as exact, and other
in the last bits.

Dimension suffixes: N tokens, I inputs of the layer, O its outputs.
"""

import platform
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.pytorch_utils import Conv1D


def is_available() -> bool:
    """Whether this torch has oneDNN on x86; on other processors torch itself takes what is best there."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and platform.machine().lower() in ("x86_64", "amd64")


def product(one_NI: Tensor, other_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """`one @ other.T + bias` [N, O]. A transposed view in second place is read as it lies, without a copy."""
    if torch.compiler.is_compiling():
        found: Tensor = _opaque(one_NI, other_OI, bias_O)
        return found
    return _product(one_NI, other_OI, bias_O)


def _product(one_NI: Tensor, other_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    if 0 in one_NI.shape or 0 in other_OI.shape:  # it takes no empty ones
        return nn.functional.linear(one_NI, other_OI, bias_O)
    found: Tensor = torch.ops.mkldnn._linear_pointwise(one_NI, other_OI, bias_O, "none", [], "")
    return found


@torch.library.custom_op("rloo::product", mutates_args=())
def _opaque(one_NI: Tensor, other_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """For torch.compile, which knows the operation by name and takes it for constant weights only."""
    return _product(one_NI, other_OI, bias_O)


@_opaque.register_fake
def _(one_NI: Tensor, other_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    return one_NI.new_empty(one_NI.shape[0], other_OI.shape[0])


class _Linear(torch.autograd.Function):
    """y = x W' + b        dx = dy W        dW = dy' x        db = sum of dy over the tokens"""

    @staticmethod
    def forward(ctx: Any, input_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        needs_input, needs_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(input_NI if needs_weight else None, weight_OI if needs_input else None)
        return product(input_NI, weight_OI, bias_O)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad_NO: Tensor) -> tuple[Tensor | None, ...]:
        input_NI, weight_OI = ctx.saved_tensors
        return (
            None if weight_OI is None else product(grad_NO, weight_OI.t()),
            None if input_NI is None else product(grad_NO.t(), input_NI.t()),
            grad_NO.sum(dim=0) if ctx.needs_input_grad[2] else None,
        )


def linear(input_: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """`torch.nn.functional.linear` of float32 tensors on a CPU; of any others that function itself."""
    if input_.dtype != torch.float32 or weight_OI.dtype != torch.float32 or input_.device.type != "cpu":
        return nn.functional.linear(input_, weight_OI, bias_O)
    input_NI = input_.reshape(-1, input_.shape[-1])
    call = _Linear.apply if torch.is_grad_enabled() else product
    found: Tensor = call(input_NI, weight_OI, bias_O)
    return found.view(*input_.shape[:-1], weight_OI.shape[0])


class OneDnnLinear(nn.Linear):
    """The linear layer of most models."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  the name that torch gives it
        return linear(input, self.weight, self.bias)


class OneDnnConv1D(Conv1D):  # type: ignore[misc]
    """The linear layer of GPT-2, whose weight lies the other way round."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight.t(), self.bias)


TAKES_THE_PLACE_OF: dict[type, type] = {nn.Linear: OneDnnLinear, Conv1D: OneDnnConv1D}


def use_onednn(model: Any) -> None:
    """Let the model's linear layers, its head among them, compute by oneDNN. Names and weights stay."""
    for module in model.modules():
        module.__class__ = TAKES_THE_PLACE_OF.get(type(module), type(module))


def uses_onednn(model: Any) -> bool:
    return any(isinstance(module, OneDnnLinear | OneDnnConv1D) for module in model.modules())
