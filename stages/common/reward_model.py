"""Reward models: sequence-classification folders with one label, and the score that they give to token sequences.

The score is the head's value at the last attended position. Transformers' own forward looks for the last token that is
not the pad token instead; where the pad token ends sequences too it would read one position early.

Dimension suffixes: B sequences of a batch, L tokens of the longest, H hidden size.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from transformers import AutoConfig, AutoModelForSequenceClassification

from stages.common.checked import reading
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.kept.parts import Part, Work, in_parts
from stages.common.model_folder import how_to_load, load_tokenizer, owned
from stages.common.positions import positions_of

NORMALISATION = "normalisation.json"  # {mean, std, samples} of the scores over answers of the reference


class RewardModelError(StageError):
    """A folder that is no reward model, or a sequence that it cannot read."""


def load_reward_model(source: Path | str, dtype: torch.dtype | str, *, own_code: bool = False) -> Any:
    """A sequence-classification model with one label and a trained head; anything else is refused. `own_code`: run the
    Python code that the folder brings, which only one of the run may.
    """
    try:
        how = {"trust_remote_code": own_code}
        labels = AutoConfig.from_pretrained(source, **how).num_labels
        model, info = AutoModelForSequenceClassification.from_pretrained(
            source, dtype=dtype, output_loading_info=True, **how
        )
    except (OSError, ValueError) as error:
        raise RewardModelError(f"{source}: cannot be loaded as a reward model: {error}") from None
    if labels != 1:
        raise RewardModelError(
            f"{source}: a reward model gives one number, this one has {labels} labels (num_labels); "
            "classifiers and language models are none"
        )
    if info["missing_keys"]:
        raise RewardModelError(
            f"{source}: has no weights for {sorted(info['missing_keys'])[:3]}: its head is untrained"
        )
    return model.eval().requires_grad_(False)


def load_reward_folder(folder: Path, runtime: Runtime) -> tuple[Any, Any]:
    """Model, on the device, and tokenizer of a reward model that an earlier stage wrote."""
    if not (folder / "config.json").exists():
        raise RewardModelError(f"{folder} does not exist; run the stage that makes it (`dvc repro` or `rloo train`)")
    own_code = how_to_load(folder)["trust_remote_code"]
    with reading(folder):
        tokenizer = load_tokenizer(folder)
        model = load_reward_model(folder, runtime.dtype, own_code=own_code)
        owned(model)
    return model.to(runtime.device), tokenizer


def head_of(model: Any) -> torch.nn.Module | None:
    """The linear head over the last hidden state, `score` in all causal models; None: an encoder with a pooler."""
    head = getattr(model, "score", None)
    return head if isinstance(head, torch.nn.Module) else None


def padded(sequences: Sequence[Sequence[int]], *, left: bool = False) -> tuple[Tensor, Tensor]:
    """Token ids [B, L] and attention mask [B, L]. The padding's id is 0: nothing attends to it."""
    longest = max(map(len, sequences))
    ids_BL = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask_BL = torch.zeros(len(sequences), longest, dtype=torch.long)
    for b, sequence in enumerate(sequences):
        place = slice(longest - len(sequence), longest) if left else slice(0, len(sequence))
        ids_BL[b, place] = torch.tensor(sequence, dtype=torch.long)
        mask_BL[b, place] = 1
    return ids_BL, mask_BL


def score_batch(model: Any, ids_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """Scores [B] in float32, on the model's device and with gradient if that is enabled; padding on either side."""
    device, head = next(model.parameters()).device, head_of(model)
    if head is None:
        score_B: Tensor = model(input_ids=ids_BL.to(device), attention_mask=mask_BL.to(device)).logits[:, 0]
    else:
        last_B = (mask_BL * torch.arange(mask_BL.shape[1])).argmax(dim=1).to(device)
        hidden_BLH = _hidden(model.base_model, ids_BL, mask_BL, device)
        score_B = _headed(head, hidden_BLH[torch.arange(len(last_B), device=device), last_B])
    return score_B.float()


def _headed(head: torch.nn.Module, hidden_BH: Tensor) -> Tensor:
    """The head's values [B], of a linear one in float32: in bfloat16 scores near 4 would be multiples of 1/64."""
    if not isinstance(head, torch.nn.Linear):
        found_B: Tensor = head(hidden_BH)[:, 0]
        return found_B
    bias = None if head.bias is None else head.bias.float()
    return linear(hidden_BH.float(), head.weight.float(), bias)[:, 0]


def _hidden(base: Any, ids_BL: Tensor, mask_BL: Tensor, device: torch.device) -> Tensor:
    """Last hidden state [B, L, H]; positions count from a sequence's first token, wherever its padding is."""
    options: dict[str, Any] = {"use_cache": False}
    if "position_ids" in inspect.signature(base.forward).parameters:  # models with ALiBi count by the mask
        options["position_ids"] = (mask_BL.cumsum(dim=1) - 1).clamp(min=0).to(device)
    output = base(input_ids=ids_BL.to(device), attention_mask=mask_BL.to(device), **options)
    hidden_BLH: Tensor = output.last_hidden_state
    return hidden_BLH


def unreadable(model: Any, sequence: Sequence[int]) -> str | None:
    """Why the model cannot read the sequence, or None."""
    limit = positions_of(model.config)
    if not sequence:
        return "no tokens"
    if limit is not None and len(sequence) > limit:
        return f"{len(sequence)} tokens, and the reward model has {limit} positions"
    return None


def length_batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Indices in batches of at most `max_tokens` tokens with padding, longest first; at least one a batch."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@torch.no_grad()
def scores(
    model: Any,
    sequences: Sequence[Sequence[int]],
    max_tokens: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[float]:
    """The score of each sequence, in order. `progress` hears how many of how many are done.

    Batches that a killed run of the stage had finished are not read again.
    """
    found = [0.0] * len(sequences)
    batches = list(length_batches([len(sequence) for sequence in sequences], max_tokens))

    def one_batch(number: int) -> Part:
        batch = batches[number]
        reason = unreadable(model, sequences[batch[0]]) or unreadable(model, sequences[batch[-1]])
        if reason is not None:
            raise RewardModelError(f"a sequence to be scored has {reason}")
        return {"score": score_batch(model, *padded([sequences[i] for i in batch])).cpu()}

    content = {"sequences": [list(sequence) for sequence in sequences], "max_tokens": max_tokens}
    work = Work("scores", "batches of the reward model", (), model, content)
    done = 0
    for batch, part in zip(batches, in_parts(work, len(batches), one_batch), strict=True):
        for index, value in zip(batch, part["score"].tolist(), strict=True):
            found[index] = value
        done += len(batch)
        progress(done, len(sequences))
    return found
