"""Asking a model once what it honours."""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from stages.common.kept.key import noted_identity, runtime_of


def once_per_model(probe: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Ask each model once while it is held, and not again when it is read anew from the same files.

    A yes that has changed how the model computes is asked again of what is read anew, and so is a no.
    """
    known: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
    said_yes: set[Hashable] = set()

    @wraps(probe)
    def asked(model: Any) -> bool:
        if model not in known:
            content = content_of(model)
            known[model] = content in said_yes or probe(model)
            if known[model] and content is not None and content == content_of(model):
                said_yes.add(content)
        return known[model]

    return asked


def content_of(model: Any) -> Hashable | None:
    """The same for models of the same files that compute in the same way; None for one that has no files."""
    files = noted_identity(model)
    attention = model.config.get_text_config()._attn_implementation
    return None if files is None else (files, attention, str(runtime_of(model)))
