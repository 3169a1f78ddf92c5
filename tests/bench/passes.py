"""Seconds of passes over packed rows, by what multiplies, by the form of the mask, and by the length of rows.

    python -m tests.bench.passes [--rounds 2]

A model of SmolLM2-135M's sizes with random weights, float32, one thread; eight prompts of 60 tokens with four
completions of 30 tokens each. In turn, A B A B, in one process.
"""

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

from tests.bench.job import say
from tests.bench.measure import in_child, middle, publish

PROMPTS, PROMPT, SAMPLES, COMPLETION = 8, 60, 4, 30
WAYS = [
    ("torch", "dense", 512),
    ("onednn", "dense", 512),
    ("onednn", "parts", 512),
    ("onednn", "dense", 2048),
    ("onednn", "parts", 2048),
    ("onednn", "parts", 128),
]


def model_of(linear: str, mask: str) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from stages.common.block_mask import use_block_attention
    from stages.common.linear import use_onednn

    torch.manual_seed(0)
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
    config = LlamaConfig(vocab_size=49152, num_key_value_heads=3, tie_word_embeddings=True, **sizes)
    model = LlamaForCausalLM(config).eval()
    if mask == "parts":
        use_block_attention(model, torch.device("cpu"))
    if linear == "onednn":
        use_onednn(model)
    return model


def rows_of(budget: int) -> list[Any]:
    from stages.common.packing import Group, pack

    drawn = random.Random(0)

    def ids(count: int) -> list[int]:
        return [drawn.randrange(100, 40000) for _ in range(count)]

    each = range(SAMPLES)
    return pack([Group(ids(PROMPT), [ids(COMPLETION) for _ in each], each) for _ in range(PROMPTS)], budget)


def taken(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(rounds: int) -> None:
    """The child: forward passes alone, and with the backward pass, of each way."""
    import torch

    from stages.common.device import set_up
    from stages.common.logprobs import row_logprobs
    from stages.common.params import Compute

    set_up(Compute(device="cpu", threads=1))
    found: list[dict[str, list[float]]] = [{"forward": [], "training": []} for _ in WAYS]
    for number in range(rounds + 1):  # the first one is the warm-up
        for (linear, mask, budget), times in zip(WAYS, found, strict=True):
            model, rows = model_of(linear, mask), rows_of(budget)

            def forward(model: Any = model, rows: list[Any] = rows) -> None:
                with torch.no_grad():
                    for row in rows:
                        row_logprobs(model, row, 1.0)

            def training(model: Any = model, rows: list[Any] = rows) -> None:
                for row in rows:
                    row_logprobs(model, row, 1.0).sum().backward()

            seconds = {"forward": taken(forward), "training": taken(training)}
            for name, value in seconds.items() if number else ():
                times[name].append(value)
    say({"found": found})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often all sides take their turn")
    parser.add_argument("--child", action="store_true", help="measure in this process")
    options = parser.parse_args()
    if options.child:
        measure(options.rounds)
        return
    found = in_child("tests.bench.passes", "--child", "--rounds", str(options.rounds), threads=1)["found"]
    rows = [
        {
            "linear": linear,
            "mask": mask,
            "pack_tokens": budget,
            "forward, s": middle([times], "forward"),
            "forward and backward, s": middle([times], "training"),
            "x the first": middle([found[0]], "training") / middle([times], "training"),
        }
        for (linear, mask, budget), times in zip(WAYS, found, strict=True)
    ]
    title = f"{PROMPTS} prompts of {PROMPT} tokens x {SAMPLES} completions of {COMPLETION}, float32, one thread"
    publish("passes", title, rows)


if __name__ == "__main__":
    main()
