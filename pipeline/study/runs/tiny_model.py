"""A language model of the small world, from nothing: one token per word, a few ten thousand weights."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

PAD = "<pad>"


def word_tokenizer(vocabulary: Sequence[str], end: str) -> PreTrainedTokenizerFast:
    """One token for each word between spaces; the first of them ends a sequence, and padding has one of its own."""
    ids = {word: place for place, word in enumerate((*vocabulary, PAD))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=PAD)


def write_model(folder: Path, vocabulary: Sequence[str], end: str, size: dict[str, int], seed: int) -> None:
    """A Llama of random weights with its tokenizer, as an ordinary model folder."""
    tokenizer = word_tokenizer(vocabulary, end)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=size["hidden"],
        intermediate_size=2 * size["hidden"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["heads"],
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    logging.disable_progress_bar()
    torch.manual_seed(seed)
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
