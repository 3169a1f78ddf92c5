"""Asking a model once what it honours, which lies in its code and config and not in its weights."""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from peft import PeftModel

from stages.common.body import is_compiled


def once_per_model(probe: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Ask each model once while it is held, and of one code and config only the first.

    A no is asked again of the next one, as weights that are not finite give it, too; and so is a yes that has changed
    how the model computes.
    """
    known: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
    able: set[Hashable] = set()

    @wraps(probe)
    def asked(model: Any) -> bool:
        if model not in known:
            kind = kind_of(model)
            known[model] = kind in able or probe(model)
            if known[model] and kind is not None and kind == kind_of(model):
                able.add(kind)
        return known[model]

    return asked


def kind_of(model: Any) -> Hashable | None:
    """The same for models that differ in their weights alone; None for one with an adapter in it."""
    if isinstance(model, PeftModel):
        return None
    how = model.config.get_text_config()._attn_implementation, model.dtype, str(model.device), is_compiled(model)
    return type(model), model.config.to_json_string(), how
