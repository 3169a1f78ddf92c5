"""Tokens per second of the sampler against transformers' `generate`, by prompts, K, and how early rows end.

    python -m tests.bench.generate [--rounds 2] [--new-tokens 24]

SmolLM2-135M in float32, one thread; in turn, A B A B, each in a process of its own. Both get the same prompts, the same
temperature, the same limit, and the same stop ids: so large a set of them that about the share named stops at each
token. `generate` has all prompts, each K times, in one left-padded batch. Tokens are those of the completions.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from tests.bench.job import say, workspace
from tests.bench.measure import in_child, middle, publish

CASES = [
    (4, 4, 0.0),
    (16, 1, 0.0),
    (16, 4, 0.0),
    (16, 4, 0.05),
    (16, 4, 0.15),
]  # prompts, K, share that stops per token
SIDES = ("sampler", "generate")


def stop_ids(vocabulary: int, share: float) -> frozenset[int]:
    """Ids that take about this share of what a model says at temperature 1, spread over the whole vocabulary."""
    return frozenset(range(0, vocabulary, round(1 / share))) if share else frozenset()


def sampled(model: Any, prompts: list[list[int]], count: int, new: int, stops: frozenset[int]) -> int:
    """Tokens that the sampler made."""
    from stages.common.seeds import seed_of
    from stages.rollout.sampler import Request, SamplerSettings, sample

    requests = [Request(ids, [seed_of("bench", i, n) for n in range(count)]) for i, ids in enumerate(prompts)]
    groups = sample(model, requests, SamplerSettings(new, 1.0, stops, 8192))
    return sum(len(one.completion_ids) for group in groups for one in group)


def generated(model: Any, prompts: list[list[int]], count: int, new: int, stops: frozenset[int]) -> int:
    """Tokens that `generate` made, up to and with the first stop id of each row."""
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(one)) + one for one in prompts]).repeat_interleave(count, dim=0)
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts])
    torch.manual_seed(0)
    found = model.generate(
        input_ids=ids,
        attention_mask=mask.repeat_interleave(count, dim=0),
        max_new_tokens=new,
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=sorted(stops) or None,
        pad_token_id=0,
    )[:, longest:]
    return sum(next((n for n, token in enumerate(row, 1) if token in stops), len(row)) for row in found.tolist())


def side(name: str, folder: str, new: int) -> None:
    """One process: each case once, after a short one to warm up."""
    import torch

    from stages.common.device import set_up
    from stages.common.model_folder import load_model
    from stages.common.params import Compute

    os.chdir(folder)
    model = load_model(Path("data/reference"), set_up(Compute(device="cpu", dtype="float32", threads=1)))
    model.generation_config.eos_token_id = None
    table = pl.read_parquet("data/prompts.parquet").filter(split="train")["prompt_ids"].to_list()
    run = sampled if name == "sampler" else generated
    seconds, cpu, tokens = list[float](), list[float](), list[int]()
    run(model, table[:2], 2, 2, frozenset())
    for prompts, count, share in CASES:
        started, used = time.perf_counter(), time.process_time()
        with torch.no_grad():
            tokens.append(run(model, table[:prompts], count, new, stop_ids(model.config.vocab_size, share)))
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    say({"tokens": tokens, "seconds": seconds, "cpu": cpu})


def row(number: int, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians over the rounds; a second of CPU is little disturbed by what else runs on the machine."""
    prompts, count, share = CASES[number]
    rates = {
        (name, clock): middle([{"rate": one["tokens"][number] / one[clock][number]} for one in found[name]], "rate")
        for name in SIDES
        for clock in ("seconds", "cpu")
    }
    return {
        "prompts": prompts,
        "K": count,
        "stop per token": share,
        "tokens": found["sampler"][0]["tokens"][number],
        **{f"{name}, tokens/s": rates[name, "seconds"] for name in SIDES},
        **{f"{name}, tokens/CPU s": rates[name, "cpu"] for name in SIDES},
        "times generate": rates["sampler", "cpu"] / rates["generate", "cpu"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often all sides take their turn")
    parser.add_argument("--new-tokens", type=int, default=24, help="at most, of a sample")
    parser.add_argument("--folder", type=Path, help="a project that tests.bench.job has made")
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "project"
        if options.folder is None:
            workspace(folder, "full", 1)
        for _ in range(options.rounds):
            for name in SIDES:
                arguments = name, str(folder.resolve()), str(options.new_tokens)
                found[name].append(in_child("tests.bench.generate", *arguments, threads=1))
    rows = [row(number, found) for number in range(len(CASES))]
    publish("generate", f"float32, one thread, {options.new_tokens} new tokens", rows)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in SIDES:
        side(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
