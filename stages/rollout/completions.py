"""Completions as rows of a table, and the settings they are sampled with."""

from typing import Any

from stages.common.params import Params
from stages.rollout.sampler import Sample, SamplerSettings
from stages.rollout.stopping import stop_ids


def settings_of(params: Params, tokenizer: Any, temperature: float) -> SamplerSettings:
    """Temperature 0 is greedy decoding, with log-probs at temperature 1."""
    return SamplerSettings(
        max_new_tokens=params.rollout.max_new_tokens,
        temperature=temperature or 1.0,
        stop_ids=stop_ids(tokenizer, params.rollout),
        batch_sequences=params.rollout.batch_sequences,
        greedy=temperature == 0.0,
    )


def text_of(tokenizer: Any, one: Sample) -> str:
    """The completion without its end-of-sequence token; other special tokens stay, as they are part of the answer."""
    ids = one.completion_ids[:-1] if one.stopped else one.completion_ids
    text: str = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def completion_columns(tokenizer: Any, one: Sample) -> dict[str, Any]:
    return {
        "completion": text_of(tokenizer, one),
        "completion_ids": one.completion_ids,
        "sampler_logprobs": one.logprobs,
        "entropy": sum(one.entropies) / len(one.entropies),
        "finish_reason": one.finish_reason,
        "length": len(one.completion_ids),
    }
