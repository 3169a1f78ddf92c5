"""Which tokens end an answer: what params.yaml says, never what the checkpoint's generation_config says.

With `rollout.stop_tokens: null` these are the tokenizer's end-of-sequence token and all that the model's config.json
names: models that were trained on turns end some of them with one token and some with another. Ids for which the
tokenizer has no token count, too.
"""

from pathlib import Path
from typing import Any

from stages.common.model_folder import eos_of_folder
from stages.common.params import ParamsError, Rollout
from stages.common.paths import REFERENCE


def stop_ids(tokenizer: Any, rollout: Rollout, folder: Path = REFERENCE) -> frozenset[int]:
    """Ids of `rollout.stop_tokens`; if that is null, those of tokenizer and model in `folder`."""
    if rollout.stop_tokens is None:
        return frozenset(_own(tokenizer, folder))
    vocabulary = tokenizer.get_vocab()
    unknown = [token for token in rollout.stop_tokens if token not in vocabulary]
    if unknown:
        raise ParamsError(
            f"params.yaml: rollout.stop_tokens: {unknown} are not tokens of the model's tokenizer; null takes its "
            "own end of sequence"
        )
    return frozenset(vocabulary[token] for token in rollout.stop_tokens)


def end_id(tokenizer: Any, rollout: Rollout, folder: Path = REFERENCE) -> int:
    """What is put after an answer that does not end with a stop token yet: the first of them."""
    if rollout.stop_tokens is None:
        return _own(tokenizer, folder)[0]
    return int(tokenizer.get_vocab()[rollout.stop_tokens[0]])


def _own(tokenizer: Any, folder: Path) -> list[int]:
    """The tokenizer's id first, if it has one."""
    first = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    ids = list(dict.fromkeys([*first, *eos_of_folder(folder)]))
    if not ids:
        raise ParamsError(
            "params.yaml: rollout.stop_tokens: neither the tokenizer nor the model's config.json has an "
            "end-of-sequence token; name one or more tokens"
        )
    return ids
