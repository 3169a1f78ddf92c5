"""Which tokens end an answer: what params.yaml says, never what the checkpoint's generation_config says."""

from typing import Any

from stages.common.params import ParamsError, Rollout


def stop_ids(tokenizer: Any, rollout: Rollout) -> frozenset[int]:
    """Ids of `rollout.stop_tokens`; if that is null, the tokenizer's end-of-sequence token."""
    if rollout.stop_tokens is None:
        if tokenizer.eos_token_id is None:
            raise ParamsError(
                "params.yaml: rollout.stop_tokens: the tokenizer has no eos token; name one or more tokens"
            )
        return frozenset({int(tokenizer.eos_token_id)})
    vocabulary = tokenizer.get_vocab()
    unknown = [token for token in rollout.stop_tokens if token not in vocabulary]
    if unknown:
        raise ParamsError(f"params.yaml: rollout.stop_tokens: {unknown} are not tokens of the model's tokenizer")
    return frozenset(vocabulary[token] for token in rollout.stop_tokens)
