"""Completions as rows of a table, and the settings they are sampled with."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from stages.common.cores import available_cores
from stages.common.params import Params
from stages.common.paths import REFERENCE
from stages.rollout.samples import Sample, SamplerSettings
from stages.rollout.stopping import stop_ids

NO_TOKEN = "\ufffd"


def settings_of(params: Params, tokenizer: Any, temperature: float, folder: Path = REFERENCE) -> SamplerSettings:
    """Temperature 0 is greedy decoding, with log-probs at temperature 1. `folder`: of the model that samples."""
    return SamplerSettings(
        max_new_tokens=params.rollout.max_new_tokens,
        temperature=temperature or 1.0,
        stop_ids=stop_ids(tokenizer, params.rollout, folder),
        batch_tokens=params.rollout.batch_tokens,
        greedy=temperature == 0.0,
        processes=processes_of(params),
    )


def processes_of(params: Params) -> int:
    """`auto`: as many as there are cores, and one where a GPU samples."""
    if params.rollout.processes != "auto":
        return params.rollout.processes
    device = params.compute.device
    on_gpu = torch.cuda.is_available() if device == "auto" else device.startswith("cuda")
    return 1 if on_gpu else available_cores()


def text_of(tokenizer: Any, one: Sample) -> str:
    """The completion without its end-of-sequence token; other special tokens stay, as they are part of the answer."""
    return decoded(tokenizer, one.completion_ids[:-1] if one.stopped else one.completion_ids)


def decoded(tokenizer: Any, ids: list[int]) -> str:
    """The text of token ids. A model may have more ids than its tokenizer has tokens: each of those is one U+FFFD."""
    parts: list[list[int]] = [[]]
    for token in ids:
        if token in _known(tokenizer):
            parts[-1].append(token)
        else:
            parts.append([])
    texts = [tokenizer.decode(part, skip_special_tokens=False, clean_up_tokenization_spaces=False) for part in parts]
    return NO_TOKEN.join(texts)


@lru_cache(maxsize=4)
def _known(tokenizer: Any) -> frozenset[int]:
    return frozenset(tokenizer.get_vocab().values())


def completion_columns(tokenizer: Any, one: Sample) -> dict[str, Any]:
    return {
        "completion": text_of(tokenizer, one),
        "completion_ids": one.completion_ids,
        "sampler_logprobs": one.logprobs,
        "entropy": sum(one.entropies) / len(one.entropies),
        "finish_reason": one.finish_reason,
        "length": len(one.completion_ids),
    }
