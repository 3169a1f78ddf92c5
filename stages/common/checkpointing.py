"""Gradient checkpointing: activations of a layer are computed once more in the backward pass, and not kept.

The gradients are the same; a step takes longer. The library's layers do it in training mode only,
which would turn dropout on: here the layers alone are in training mode, and the modules inside them, which drop out,
stay in evaluation mode.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stages.common.body import causal_of
from stages.common.errors import StageError


@contextmanager
def gradient_checkpointing(model: Any, wanted: bool, option: str) -> Iterator[None]:
    """Checkpoint the layers of `model` within the block, if that is `wanted`; `option` asks for it in params.yaml."""
    if not wanted:
        yield
        return
    causal = causal_of(model)
    try:
        causal.activation_checkpointing_enable({"use_reentrant": False})
    except ValueError as error:
        raise StageError(f"params.yaml: {option}: {error}; set it to false") from None
    layers = [module for module in causal.modules() if getattr(module, "gradient_checkpointing", False)]
    try:
        for layer in layers:
            _refuse_own_dropout(layer, option)
            layer.training = True
        yield
    finally:
        for layer in layers:
            layer.training = False
        causal.activation_checkpointing_disable()


def _refuse_own_dropout(layer: Any, option: str) -> None:
    """Some layers drop out by a rate of their own and no module; in training mode they would."""
    rates = {name: value for name, value in vars(layer).items() if "drop" in name and isinstance(value, float)}
    if any(rates.values()):
        raise StageError(
            f"params.yaml: {option}: {type(layer).__name__} of this model would drop out activations ({rates}), and "
            "the gradients would be those of another policy; set it to false"
        )
