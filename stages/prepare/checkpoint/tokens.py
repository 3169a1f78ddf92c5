"""Whether tokenizer and weights belong together, and whether the model is one that reads from left to right."""

from pathlib import Path
from typing import Any

import torch

from stages.common.params import ParamsError
from stages.common.tokenizer_probe import PROBES

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}  # of the largest logit: experts may batch tokens otherwise
LOW_PRECISION = 2e-2


def check_tokenizer(tokenizer: Any, place: Path) -> None:
    """It has a vocabulary, and makes tokens of a text."""
    if len(tokenizer.get_vocab()) < 2 or not tokenizer(PROBES[0], add_special_tokens=False)["input_ids"]:
        raise ParamsError(f"{place}: its tokenizer has no vocabulary: files are missing; copy all of them")


def rows_of(model: Any) -> int:
    """How many token ids the model can read and predict."""
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    count = int(inputs.weight.shape[0])
    return count if outputs is None else min(count, int(outputs.weight.shape[0]))


def check_vocabulary(model: Any, tokenizer: Any, place: Path) -> None:
    """Every token has its row of weights. More rows than tokens are common, and nothing wrong."""
    largest, rows = max(tokenizer.get_vocab().values()), rows_of(model)
    if largest >= rows:
        raise ParamsError(
            f"{place}: the tokenizer has ids up to {largest}, the model weights for {rows} tokens: they do not belong "
            "together; copy the tokenizer that the model was trained with, or resize its embeddings"
        )


@torch.no_grad()
def check_causal(model: Any, place: Path) -> None:
    """Another last token changes no earlier prediction, and predictions are numbers."""
    ids = [number % rows_of(model) for number in (1, 2, 3, 4, 5)]
    try:
        one, other = (model(input_ids=torch.tensor([[*ids[:-1], last]])).logits[0, :-1] for last in (ids[-1], ids[0]))
    except Exception as error:
        raise ParamsError(f"{place}: the model cannot be run: {type(error).__name__}: {error}") from None
    if not one.isfinite().all():
        raise ParamsError(f"{place}: its predictions are not finite: the weights are broken")
    if (one - other).abs().max() > TOLERANCE.get(one.dtype, LOW_PRECISION) * one.abs().max():
        raise ParamsError(
            f"{place}: {type(model).__name__} sees tokens that come later, as encoders do: it is no decoder-only "
            "causal language model, and cannot be sampled from"
        )
