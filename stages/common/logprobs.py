"""Log-probabilities of completions under a model, at the sampling temperature.

Only the positions that predict a completion token get logits, and a bounded number of them at a time.
Dimension suffixes: L tokens of a packed row, T its predicted tokens, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from stages.common.block_mask import has_full_attention, use_dense_masks
from stages.common.body import causal_of, row_hidden, row_hidden_uncompiled, row_inputs
from stages.common.head import by_logits, chosen_tokens
from stages.common.journal import Journal
from stages.common.kept.parts import Part, Work, in_parts
from stages.common.once import once_per_model
from stages.common.packing import Group, PackedRow, pack

__all__ = [
    "PROBE",
    "PROBE_TOLERANCE",
    "by_row",
    "completion_logprobs",
    "has_plain_head",
    "reads_one_by_one",
    "row_logprobs",
    "row_logprobs_and_entropy",
    "say_one_by_one",
    "takes_block_mask",
]

PROBE_TOLERANCE = {torch.float32: 1e-2, torch.bfloat16: 0.5}  # rounding of one unit in the last place of a logit
SCALES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")  # of logits, by config
PROBE = [Group([1, 2, 3], [[4, 5], [6, 7]], [0, 1]), Group([3, 1], [[2, 2]], [2])]


def row_logits(model: Any, row: PackedRow) -> Tensor:
    """All logits [T, V], by the model's own forward pass, that predict the row's completion tokens."""
    inputs = row_inputs(model, row)
    keep_T = torch.tensor(row.predict_T, device=inputs["input_ids"].device)
    logits_TV: Tensor = model(**inputs, logits_to_keep=keep_T).logits[0]
    return logits_TV


def row_logprobs(model: Any, row: PackedRow, temperature: float) -> Tensor:
    """Log-probs [T] of the completion tokens in nats; with gradient, if gradients are enabled."""
    return _read(model, row, temperature, with_entropy=False)[0]


def row_logprobs_and_entropy(model: Any, row: PackedRow, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs [T] of the completion tokens and entropies [T] of what predicted them, both as above."""
    logp_T, entropy_T = _read(model, row, temperature, with_entropy=True)
    assert entropy_T is not None
    return logp_T, entropy_T


def _read(model: Any, row: PackedRow, temperature: float, *, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
    target_T = torch.tensor(row.target_T, device=next(model.parameters()).device)
    if not has_plain_head(model):
        return by_logits(row_logits(model, row), target_T, temperature, with_entropy=with_entropy)
    head, hidden_TH = causal_of(model).get_output_embeddings(), row_hidden(model, row)
    size = int(head.weight.shape[0])
    return chosen_tokens(head, hidden_TH, target_T, temperature, vocabulary=size, with_entropy=with_entropy)


@torch.no_grad()
def completion_logprobs(
    model: Any,
    groups: Sequence[Group],
    temperature: float,
    max_tokens: int,
    *,
    one_by_one: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    kept_as: str | None = None,
) -> dict[int, list[float]]:
    """Log-probs of every completion, keyed by the caller's row index (`Group.rows`).

    `progress` hears how many of how many forward passes are done. `kept_as`: what people call the passes; those that
    a killed run of the stage had finished are then not made again.
    """
    packed_rows = pack(groups, max_tokens, one_by_one=one_by_one)

    def one_pass(number: int) -> Part:
        return {"logp": row_logprobs(model, packed_rows[number], temperature).cpu()}

    if kept_as is None:
        parts: Iterable[Part] = map(one_pass, range(len(packed_rows)))
    else:
        content = {"passes": [vars(packed) for packed in packed_rows], "temperature": temperature}
        parts = in_parts(Work("logprobs", kept_as, (), model, content), len(packed_rows), one_pass)
    return by_row(packed_rows, "logp", parts, progress)


def by_row(
    packed_rows: Sequence[PackedRow], name: str, parts: Iterable[Part], progress: Callable[[int, int], None]
) -> dict[int, list[float]]:
    """One tensor of each forward pass, a value per token, as a list for each of the caller's rows."""
    found: dict[int, list[float]] = {row: [] for packed in packed_rows for row in packed.row_T}
    progress(0, len(packed_rows))
    for done, (packed, part) in enumerate(zip(packed_rows, parts, strict=True), start=1):
        for row, value in zip(packed.row_T, part[name].tolist(), strict=True):
            found[row].append(value)
        progress(done, len(packed_rows))
    return found


@once_per_model
@torch.no_grad()
def has_plain_head(model: Any) -> bool:
    """Whether the logits are the head's product with the last hidden state and nothing else; tried on a few tokens.

    Some models bound or scale them afterwards. Such logits are computed by the model's own forward pass, all at once.
    """
    config, causal = model.config.get_text_config(), causal_of(model)
    if any(getattr(config, name, None) not in (None, 1.0) for name in SCALES):
        return False
    row = pack(PROBE, 64, one_by_one=True)[0]
    try:
        own = causal.get_output_embeddings()(row_hidden_uncompiled(model, row))
        return torch.equal(own, row_logits(model, row))
    except (AttributeError, ValueError, TypeError, RuntimeError):  # code of its own, which has other parts
        return False


@once_per_model
@torch.no_grad()
def takes_block_mask(model: Any) -> bool:
    """Whether the model honours a block mask: asked of its config first, then tried on a few tokens, as it is used.

    Sliding windows, recurrent layers and position biases built from the mask's shape do not; such models get one
    completion per row, which needs no mask. Where FlexAttention does not work, dense masks are tried.
    """
    if not has_full_attention(model):
        return False
    return _honours(model) or (use_dense_masks(causal_of(model)) and _honours(model))


def reads_one_by_one(model: Any, journal: Journal) -> bool:
    """Whether each completion has to have a pass of its own, which the journal then says."""
    return say_one_by_one("this model", journal, packed=takes_block_mask(model))


def say_one_by_one(what: str, journal: Journal, *, packed: bool) -> bool:
    if not packed:
        journal.say(f"{what} does not take a block mask: one completion per forward pass")
    return not packed


def _honours(model: Any) -> bool:
    plain = completion_logprobs(model, PROBE, 1.0, 64, one_by_one=True)
    try:
        packed = completion_logprobs(model, PROBE, 1.0, 64)
    except (ValueError, TypeError, RuntimeError):  # a model that builds its own mask from the shape of a padding mask
        return False
    tolerance = PROBE_TOLERANCE[model.dtype]
    return all(abs(a - b) < tolerance for row in plain for a, b in zip(packed[row], plain[row], strict=True))
