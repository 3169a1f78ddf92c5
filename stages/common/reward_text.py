"""What a reward model reads: token sequences of (prompt, completion).

A reward model over the reference reads the very tokens that were sampled. Another one, with a tokenizer or template of
its own, reads the prompt's text and the completion's as a user's and an assistant's turn in its own template; the
system turn of the task is the policy's, and is not among them. Without a template it reads the text of the prompt as
the policy did, followed by the completion.
"""

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from stages.common.chat import A_FIXED_DAY


def same_reading(one: Any, other: Any) -> bool:
    """Whether two tokenizers give the same tokens to the same turns."""
    return _identity(one) == _identity(other)


def _identity(tokenizer: Any) -> tuple[str, str | None]:
    """What decides the tokens of a text and its turns; how batches are padded and cut does not."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    parts: dict[str, Any] = tokenizer.get_vocab() if backend is None else json.loads(backend.to_str())
    kept = {name: part for name, part in parts.items() if name not in ("padding", "truncation")}
    return json.dumps(kept, sort_keys=True), tokenizer.chat_template


def sequences_of(rows: pl.DataFrame, tokenizer: Any, reference_tokenizer: Any) -> list[list[int]]:
    """One sequence per row of `prompt`, `prompt_text`, `prompt_ids`, `completion` and `completion_ids`."""
    if same_reading(tokenizer, reference_tokenizer):
        pairs = rows.select("prompt_ids", "completion_ids").iter_rows()
        return [list(prompt) + list(completion) for prompt, completion in pairs]
    texts = rows.select("prompt", "prompt_text", "completion").iter_rows()
    return [foreign_ids(tokenizer, *text) for text in texts]


def foreign_ids(tokenizer: Any, prompt: str, prompt_text: str, completion: str) -> list[int]:
    """The tokens of a reward model with a tokenizer of its own. A template writes its special tokens itself."""
    if tokenizer.chat_template is None:
        ids: Sequence[int] = tokenizer(prompt_text + completion)["input_ids"]
        return list(ids)
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, strftime_now=A_FIXED_DAY.strftime)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
