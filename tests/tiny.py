"""Tiny random models and tokenizers, made in a second, for tests that need real ones."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|stop|>", "<|user|>", "<|assistant|>", "<|system|>"]
CORPUS = ["How do I slice a ripe tomato? Use at most five words. P.S. the and of it is <<title>> * one, two. 1 2 3"]
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


def tiny_tokenizer(*, chat: bool = True) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=sorted(alphabet))
    tokenizer.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    if chat:
        fast.chat_template = CHAT_TEMPLATE
    return fast


def llama(vocabulary: int = 300, layers: int = 2) -> LlamaForCausalLM:
    """Rotary positions, grouped-query attention, tied weights."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def gpt2(vocabulary: int = 300) -> GPT2LMHeadModel:
    """Learned absolute positions."""
    torch.manual_seed(2)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=256,
        n_embd=32,
        n_layer=2,
        n_head=4,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def qwen2(vocabulary: int = 300) -> Qwen2ForCausalLM:
    """Grouped-query attention with one head of keys, biases in it, weights that are not tied."""
    torch.manual_seed(5)
    config = Qwen2Config(
        vocab_size=vocabulary,
        **SMALL,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    return Qwen2ForCausalLM(config).eval()


def sliding(vocabulary: int = 300, window: int = 4) -> MistralForCausalLM:
    """Sliding-window attention: cannot take a block mask."""
    torch.manual_seed(3)
    config = MistralConfig(
        vocab_size=vocabulary,
        **SMALL,
        num_key_value_heads=2,
        sliding_window=window,
        initializer_range=0.2,
    )
    return MistralForCausalLM(config).eval()


def save_tiny(folder: Path) -> Path:
    """A complete model folder whose generation_config says things that nobody asked for."""
    model = llama()
    model.generation_config.temperature = 0.1
    model.generation_config.top_k = 1
    model.generation_config.do_sample = True
    model.generation_config.max_new_tokens = 3
    model.generation_config.eos_token_id = [7, 8, 9]
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
