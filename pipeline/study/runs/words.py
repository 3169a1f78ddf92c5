"""A world small enough to train hundreds of policies in it: eight subjects of six words each, and a gold score.

A prompt names two subjects and a number: `cat sea 5 :` asks for five words about cats and the sea. The gold score of
an answer is known exactly, so that what a reward model has learnt of it, and what a policy makes of the reward model,
can be told apart:

    + 1   for each different word of one of the two subjects, as far as the number goes
    + 0.5 for each neighbouring pair of them that changes the subject
    - 0.5 for each word of another subject, and for each word that was there before
    - 0.5 for each word more than the number
    - 1   for an answer that does not come to an end

Demonstrations are careless on purpose: a third of their words miss the subject, some stand twice, few change subject.
"""

import random
from collections.abc import Iterator
from typing import Any

SUBJECTS = {
    "cat": ("paw", "purr", "whisker", "claw", "kitten", "fur"),
    "sea": ("wave", "salt", "tide", "shell", "foam", "coral"),
    "tea": ("cup", "leaf", "steam", "spoon", "sugar", "kettle"),
    "war": ("sword", "shield", "siege", "banner", "truce", "trench"),
    "sky": ("cloud", "star", "moon", "dawn", "comet", "rain"),
    "art": ("brush", "canvas", "sketch", "frame", "colour", "easel"),
    "law": ("judge", "jury", "oath", "trial", "clause", "verdict"),
    "bee": ("hive", "honey", "sting", "swarm", "nectar", "queen"),
}
NUMBERS = ("3", "4", "5", "6", "7", "8")
COLON, END = ":", "<end>"
OWNER = {word: subject for subject, words in SUBJECTS.items() for word in words}
VOCABULARY = (END, COLON, *NUMBERS, *SUBJECTS, *OWNER)


def all_prompts() -> list[str]:
    """Every ordered pair of two subjects with every number."""
    pairs = [(a, b) for a in SUBJECTS for b in SUBJECTS if a != b]
    return [f"{a} {b} {number} {COLON}" for a, b in pairs for number in NUMBERS]


def gold_of(prompt: str, completion: str, finish_reason: str) -> float:
    """The gold score of one answer."""
    first, second, number, _ = prompt.split()
    asked, words = int(number), completion.split()
    seen: set[str] = set()
    hits, score = 0, 0.0
    before = None
    for word in words:
        subject = OWNER.get(word)
        fits = subject in (first, second) and word not in seen
        if fits and hits < asked:
            hits += 1
            score += 1.0 + (0.5 if before is not None and before != subject else 0.0)
        elif not fits:
            score -= 0.5
        before = subject if fits else None
        seen.add(word)
    score -= 0.5 * max(0, len(words) - asked)
    return score - (0.0 if finish_reason == "stop" else 1.0)


def gold(prompts: list[str], completions: list[str], finish_reason: list[str], **_: Any) -> list[float]:
    """The gold scores of answers, with the signature of a reward function."""
    rows = zip(prompts, completions, finish_reason, strict=True)
    return [gold_of(prompt, completion, reason) for prompt, completion, reason in rows]


def careless_answer(prompt: str, chance: random.Random) -> str:
    """What a hasty writer makes of a prompt."""
    first, second, number, _ = prompt.split()
    length = max(1, int(number) + chance.choice((-2, -1, 0, 0, 1, 2)))
    words: list[str] = []
    subject = first
    for _ in range(length):
        if chance.random() < 0.25:
            subject = second if subject == first else first
        kind = subject if chance.random() < 0.67 else chance.choice(list(SUBJECTS))
        words.append(chance.choice(SUBJECTS[kind]))
    return " ".join(words)


def demonstrations(prompts: list[str], each: int, seed: int) -> Iterator[dict[str, str]]:
    """Prompt and completion, `each` times for every prompt."""
    chance = random.Random(seed)
    for prompt in prompts:
        for _ in range(each):
            yield {"prompt": prompt, "completion": careless_answer(prompt, chance)}
