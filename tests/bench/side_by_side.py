"""Tokens per second of one process with all cores' threads against one-thread processes side by side.

    python -m tests.bench.side_by_side [--rounds 2] [--prompts 32]

SmolLM2-135M in float32, and in bfloat16 (`rollout.dtype`), K = 4, 32 new tokens, on all cores; in turn, A B A B.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl

from stages.common.cores import available_cores
from tests.bench.job import say, workspace
from tests.bench.measure import in_child, middle, publish

SAMPLES, NEW_TOKENS = 4, 32
WAYS = [("float32", False), ("float32", True), ("bfloat16", False), ("bfloat16", True)]  # precision, several processes


def measure(folder: str, dtype: str, processes: int, prompts: int) -> None:
    """The child: tokens per second, after a short run that warms up."""
    import torch

    from stages.common.device import set_up
    from stages.common.model_folder import load_model
    from stages.common.params import Compute
    from stages.common.seeds import seed_of
    from stages.rollout.sampler import Request, SamplerSettings, sample
    from stages.rollout.skeleton import copied

    os.chdir(folder)
    model: Any = load_model(Path("data/reference"), set_up(Compute(device="cpu", dtype="float32")))
    if dtype != "float32":
        model = copied(model, getattr(torch, dtype))
    table = pl.read_parquet("data/prompts.parquet").filter(split="train")["prompt_ids"].to_list()[:prompts]
    requests = [Request(ids, [seed_of("bench", i, n) for n in range(SAMPLES)]) for i, ids in enumerate(table)]

    def run(new: int) -> int:
        groups = sample(model, requests, SamplerSettings(new, 1.0, frozenset(), 8192, processes=processes))
        return sum(len(one.completion_ids) for group in groups for one in group)

    run(2)
    started = time.perf_counter()
    tokens = run(NEW_TOKENS)
    say({"rate": tokens / (time.perf_counter() - started)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often all sides take their turn")
    parser.add_argument("--prompts", type=int, default=32, help="4 samples each")
    parser.add_argument("--child", nargs=3, metavar=("FOLDER", "DTYPE", "PROCESSES"), help="measure in this process")
    options = parser.parse_args()
    if options.child:
        measure(options.child[0], options.child[1], int(options.child[2]), options.prompts)
        return
    cores, found = available_cores(), [list[dict[str, Any]]() for _ in WAYS]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        workspace(folder, "full", cores)
        for _ in range(options.rounds):
            for (dtype, several), results in zip(WAYS, found, strict=True):
                child = "--child", str(folder), dtype, str(cores if several else 1), "--prompts", str(options.prompts)
                results.append(in_child("tests.bench.side_by_side", *child, threads=cores))
    rows = [
        {
            "weights": dtype,
            "processes": cores if several else 1,
            "threads of each": 1 if several else cores,
            "tokens/s": middle(results, "rate"),
            "x the first": middle(results, "rate") / middle(found[0], "rate"),
        }
        for (dtype, several), results in zip(WAYS, found, strict=True)
    ]
    publish("side_by_side", f"{options.prompts} prompts x {SAMPLES}, {NEW_TOKENS} new tokens, {cores} cores", rows)


if __name__ == "__main__":
    main()
