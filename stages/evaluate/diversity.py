"""Distinct-n (Li et al. 2016): how many of the word n-grams of all completions are different ones."""

from collections.abc import Sequence
from itertools import islice


def distinct_n(texts: Sequence[str], n: int) -> float:
    """Different n-grams divided by all n-grams; 0 if no text has n words. Words are split at white space."""
    grams: list[tuple[str, ...]] = []
    for text in texts:
        words = text.lower().split()
        grams.extend(zip(*(islice(words, start, None) for start in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else 0.0
