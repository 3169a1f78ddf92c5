"""What a tokenizer makes of fixed strings: its fingerprint, and where two of them part.

Two tokenizers agree if their tokens have the same ids and every probe the same tokens. How they are written down, and
the chat template, are no part of it.
"""

import hashlib
import json
from typing import Any

PROBES = (
    "Hello, world!",
    " leading and  double   spaces",
    "tabs\tand\nlines\n\nand\r\nmore\n\n1",
    "0 1 12 123 1234 12345 3.14159 1,000,000 60%",
    "naïve café, Straße, Ærø, señor",
    "Привет 你好 こんにちは 안녕 שלום مرحبا",
    "🙂👩‍👩‍👧‍👦 ✓ → ∑ \u00a0\u200b",
    "e\u0301 \u00e9 \ufb01 ﬀ Å",
    "def f(x):\n    return {'a': x[0] ** 2}  # comment\n",
    "https://example.org/a?b=c&d=%20e <b>bold</b>",
    "<|im_start|>user<|im_end|></s><s>[INST]<|endoftext|><unk>",
    "\\frac{1}{2} + x^2 = \\boxed{42} $5",
    "UPPER lower CamelCase snake_case don't we'll I'M",
)


def probe_ids(tokenizer: Any) -> list[list[int]]:
    """The ids of each probe, without the special tokens that a tokenizer puts around a text."""
    return [list(map(int, tokenizer(text, add_special_tokens=False)["input_ids"])) for text in PROBES]


def fingerprint(tokenizer: Any) -> str:
    return _hash(probe_ids(tokenizer))


def vocabulary_hash(tokenizer: Any) -> str:
    return _hash(sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])))


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()


def difference(one: Any, other: Any) -> str | None:
    """In words, the first thing in which two tokenizers differ; null: they agree."""
    for text, mine, its in zip(PROBES, probe_ids(one), probe_ids(other), strict=True):
        if mine != its:
            return f"of {text!r} one makes the tokens {mine[:12]}, the other {its[:12]}"
    vocabulary, others = one.get_vocab(), other.get_vocab()
    for token in sorted(set(vocabulary) | set(others)):
        mine, its = vocabulary.get(token), others.get(token)
        if mine != its:
            return f"the token {token!r} has the id {mine} in one, {its} in the other"
    return None
