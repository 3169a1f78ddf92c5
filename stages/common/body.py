"""A causal language model in two parts: the body, from tokens to the last hidden state, and the head, to logits.

The head's logits are the largest tensors of a pass; apart from the body they can be computed a few tokens at a time.

`compute.compile` compiles the passes of the body over packed rows, by torch.compile with lengths that may vary: the
sampler's passes, whose shapes change with each token, stay as they are. Fused kernels round otherwise, so it changes
bits.

Dimension suffixes: L tokens of a packed row, T its predicted tokens, H hidden size.
"""

from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakSet

import torch
from peft import PeftModel
from torch import Tensor

from stages.common.block_mask import mask_for, use_block_attention
from stages.common.device import Runtime
from stages.common.linear import use_onednn
from stages.common.packing import PackedRow

VARIANTS = 64  # of the passes: each architecture with and without a mask, with and without gradients, and so on

_compiled: WeakSet[Any] = WeakSet()


def causal_of(model: Any) -> Any:
    """The model itself, without the wrapper that an adapter puts around it; the adapter's layers are in it."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def row_inputs(model: Any, row: PackedRow) -> dict[str, Any]:
    """What a model's forward pass takes to read a packed row: ids, positions, and a block mask where one is needed."""
    device = next(model.parameters()).device
    return {
        "input_ids": torch.tensor([row.ids_L], device=device),
        "position_ids": torch.tensor([row.positions_L], device=device),
        "attention_mask": None if row.is_plain else mask_for(causal_of(model), row, device),
        "use_cache": False,
    }


def row_hidden(model: Any, row: PackedRow) -> Tensor:
    """Last hidden state [T, H] before each completion token of the row; with gradient, if gradients are enabled."""
    return _hidden(model, row, _read_compiled() if is_compiled(model) else _read)


def row_hidden_uncompiled(model: Any, row: PackedRow) -> Tensor:
    """The same by the model's own code, whatever else is compiled."""
    return _hidden(model, row, _read)


def _hidden(model: Any, row: PackedRow, read: Callable[[Any, dict[str, Any]], Tensor]) -> Tensor:
    hidden_LH = read(causal_of(model).base_model, row_inputs(model, row))
    return hidden_LH[torch.tensor(row.predict_T, device=hidden_LH.device)]


def _read(body: Any, inputs: dict[str, Any]) -> Tensor:
    found: Tensor = body(**inputs).last_hidden_state[0]
    return found


@cache
def _read_compiled() -> Any:
    """One function for all models: it holds none of them, and models of one architecture share what was compiled."""
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # and not go on uncompiled, with other bits, unsaid
    torch._dynamo.config.recompile_limit = VARIANTS
    torch._functorch.config.donated_buffer = False  # diagnose takes several gradients of one pass
    return torch.compile(_read, dynamic=True)


def compile_passes(model: Any) -> None:
    """Compile the model's passes over packed rows when they are first made."""
    _compiled.add(causal_of(model).base_model)


def ready(model: Any, runtime: Runtime) -> Any:
    """A model that has been loaded, on its device and for passes over packed rows: evaluation mode, no gradients."""
    if runtime.device.type == "cuda" or not runtime.compile:  # the number of parts is another for each row
        use_block_attention(model, runtime.device)
    if runtime.onednn:
        use_onednn(model)
    if runtime.compile:
        compile_passes(model)
    return model.to(runtime.device).eval().requires_grad_(False)


def is_compiled(model: Any) -> bool:
    return causal_of(model).base_model in _compiled
