"""Log-probabilities of completions under a model, at the sampling temperature.

Only the positions that predict a completion token get logits, so no [batch, length, vocabulary] tensor exists.
Dimension suffixes: L tokens of a packed row, T its predicted tokens, V vocabulary.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from stages.common.kept.parts import Part, Work, in_parts
from stages.common.packing import Group, PackedRow, block_mask, pack

PROBE_TOLERANCE = {torch.float32: 1e-2, torch.bfloat16: 0.5}  # rounding of one unit in the last place of a logit
PROBE = [Group([1, 2, 3], [[4, 5], [6, 7]], [0, 1]), Group([3, 1], [[2, 2]], [2])]


def row_inputs(model: Any, row: PackedRow) -> dict[str, Any]:
    """What a model's forward pass takes to read a packed row: ids, positions, and a block mask where one is needed."""
    device = next(model.parameters()).device
    mask = None
    if not row.is_plain:
        allowed = block_mask(row, device)
        mask = torch.zeros_like(allowed, dtype=model.dtype).masked_fill(~allowed, torch.finfo(model.dtype).min)
    return {
        "input_ids": torch.tensor([row.ids_L], device=device),
        "position_ids": torch.tensor([row.positions_L], device=device),
        "attention_mask": mask,
        "use_cache": False,
    }


def row_logits(model: Any, row: PackedRow) -> Tensor:
    """Logits [T, V], in float32 or better, that predict the row's completion tokens."""
    inputs = row_inputs(model, row)
    keep_T = torch.tensor(row.predict_T, device=inputs["input_ids"].device)
    logits_TV: Tensor = model(**inputs, logits_to_keep=keep_T).logits[0]
    return logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))


def row_logprobs(model: Any, row: PackedRow, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs [T] of the completion tokens in nats, and the scaled logits [T, V] they come from.

    With gradient, if gradients are enabled.
    """
    logits_TV = row_logits(model, row) / temperature
    target_T = torch.tensor(row.target_T, device=logits_TV.device)
    logp_T = logits_TV.gather(-1, target_T[:, None])[:, 0] - logits_TV.logsumexp(dim=-1)
    return logp_T, logits_TV


def entropy(logits_NV: Tensor) -> Tensor:
    """Entropy [N] of the distributions given by logits [N, V], in nats."""
    return entropy_of_logprobs(logits_NV.log_softmax(dim=-1))


def entropy_of_logprobs(logp_NV: Tensor) -> Tensor:
    """Entropy [N] in nats; a probability of zero adds nothing."""
    return -(logp_NV.exp() * logp_NV.clamp(min=torch.finfo(logp_NV.dtype).min)).sum(dim=-1)


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
        return {"logp": row_logprobs(model, packed_rows[number], temperature)[0].cpu()}

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


def has_full_attention(model: Any) -> bool:
    """Whether the model's config speaks of full attention in every layer."""
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    return layers == {"full_attention"} and not getattr(config, "sliding_window", None)


def once_per_model(probe: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Ask a model once while it is held: what it honours lies in its code and config, not in its weights."""
    known: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    @wraps(probe)
    def asked(model: Any) -> bool:
        if model not in known:
            known[model] = probe(model)
        return known[model]

    return asked


@once_per_model
@torch.no_grad()
def takes_block_mask(model: Any) -> bool:
    """Whether the model honours a block mask: asked of its config first, then tried on a few tokens.

    Sliding windows, recurrent layers and position biases built from the mask's shape do not; such models get one
    completion per row, which needs no mask.
    """
    if not has_full_attention(model):
        return False
    plain = completion_logprobs(model, PROBE, 1.0, 64, one_by_one=True)
    try:
        packed = completion_logprobs(model, PROBE, 1.0, 64)
    except (ValueError, TypeError, RuntimeError):  # a model that builds its own mask from the shape of a padding mask
        return False
    tolerance = PROBE_TOLERANCE[model.dtype]
    return all(abs(a - b) < tolerance for row in plain for a, b in zip(packed[row], plain[row], strict=True))
