"""What training starts from: the reference with a new head; and models that exist already.

These are copies of their own: a process that holds the reference for other stages keeps it as it is.
"""

from collections.abc import Set
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from stages.common.checked import reading
from stages.common.device import Runtime
from stages.common.model_folder import how_to_load, owned
from stages.common.params import Lora
from stages.common.policy import load_tokenizer, new_adapter
from stages.common.reward_model import RewardModelError, head_of, load_reward_model
from stages.common.seeds import seed_of


def new_reward_model(folder: Path, runtime: Runtime, seed: int, ends: Set[int]) -> tuple[Any, Any]:
    """The language model in a folder under a new head, and its tokenizer; `ends` are tokens that end sequences."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # that the head is new and the language model's is gone is what is wanted
    try:
        with reading(folder):
            model = AutoModelForSequenceClassification.from_pretrained(
                folder, num_labels=1, dtype=runtime.dtype, **how_to_load(folder)
            )
            owned(model)
    except ValueError as error:
        raise RewardModelError(f"{folder}: transformers has no sequence classification for it: {error}") from None
    finally:
        logging.set_verbosity(verbosity)
    start_head(model, seed)
    tokenizer = load_tokenizer(folder)
    choose_padding(model, tokenizer, ends)
    return model.to(runtime.device).eval(), tokenizer


def start_head(model: Any, seed: int) -> None:
    """Weights of standard deviation 1/sqrt(H + 1) (Stiennon et al. 2020), the same on any device."""
    head: Any = head_of(model)
    if head is None:
        raise RewardModelError(f"{type(model).__name__} has no head `score` over its last hidden state")
    generator = torch.Generator().manual_seed(seed_of(seed, "head") % 2**63)
    values = torch.randn(head.weight.shape, generator=generator) / (head.weight.shape[1] + 1) ** 0.5
    with torch.no_grad():
        head.weight.copy_(values)
        if head.bias is not None:
            head.bias.zero_()


def choose_padding(model: Any, tokenizer: Any, ends: Set[int]) -> None:
    """A pad token that is none of those which end a sequence, so that transformers' own forward reads where we do.

    Where there is none the config names no pad token: transformers then takes one sequence at a time, and its end.
    """
    candidates = (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id)
    found = next((token for token in candidates if token is not None and token not in ends), None)
    if found is not None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(found)
    model.config.get_text_config().pad_token_id = found


def make_trainable(model: Any, lora: Lora | None, seed: int) -> Any:
    """All weights (None), or an adapter and the whole head; returns what `merged` takes."""
    if lora is None:
        return model.requires_grad_(True)
    adapted = new_adapter(model, lora, seed_of(seed, "lora") % 2**63, task=None)
    model.score.requires_grad_(True)
    return adapted


def merged(model: Any, lora: Lora | None) -> Any:
    """The plain model after training, without gradients."""
    plain = model if lora is None else model.merge_and_unload()
    return plain.eval().requires_grad_(False)


def existing_reward_model(source: str, runtime: Runtime) -> tuple[Any, Any]:
    """Model and tokenizer of a local folder or a hub id."""
    model = load_reward_model(Path(source) if Path(source).exists() else source, "auto")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise RewardModelError(f"{source}: its tokenizer cannot be loaded: {error}") from None
    return model.to(runtime.device), tokenizer
