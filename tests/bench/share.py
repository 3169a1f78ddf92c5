"""How much of this machine's float32 matrix peak rollout, score and update reach on useful tokens.

    python -m tests.bench.share [--threads 1] [--prompts 16] [--folder PROJECT]

SmolLM2-135M, full fine-tuning in float32. The peak is the best of several products of two large matrices, measured
before and after the stages in the same run.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.counting import operations, tokens_of
from tests.bench.job import say, workspace
from tests.bench.measure import in_child, middle, publish

SIZE, TRIES = 2048, 5


def peak() -> float:
    """Operations a second of the best of some large products, by MKL and by oneDNN, in this process."""
    import time

    import torch

    from stages.common.linear import product

    one, other = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    best = float("inf")
    for multiply in (torch.matmul, product) * TRIES:
        started = time.perf_counter()
        multiply(one, other)
        best = min(best, time.perf_counter() - started)
    return 2 * SIZE**3 / best


def rows_of(folder: Path, iterations: int, threads: int) -> list[dict[str, Any]]:
    before = in_child("tests.bench.share", "--peak", threads=threads)["peak"]
    found = in_child("tests.bench.own_stages", str(folder), str(iterations), threads=threads)
    after = in_child("tests.bench.share", "--peak", threads=threads)["peak"]
    most = max(before, after)
    tokens = tokens_of(folder, iterations + 1)
    wanted = operations(tokens, folder / "data/reference")
    return [
        {
            "phase": phase,
            "seconds": middle([found], phase),
            "useful tokens": tokens[phase]["read"],
            "tokens a second": tokens[phase]["read"] / middle([found], phase),
            "Gflop/s": wanted[phase] / middle([found], phase) / 1e9,
            "peak, Gflop/s": most / 1e9,
            "share of the peak": wanted[phase] / middle([found], phase) / most,
        }
        for phase in wanted
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="of the process")
    parser.add_argument("--prompts", type=int, default=16, help="of an iteration, 4 samples each")
    parser.add_argument("--folder", type=Path, help="for the project, which is made anew")
    parser.add_argument("--peak", action="store_true", help="only the peak, for the process that asks for it")
    options = parser.parse_args()
    if options.peak:
        say({"peak": peak()})
        return
    with tempfile.TemporaryDirectory() as scratch:
        work = workspace(options.folder or Path(scratch) / "project", "full", options.threads)
        work.change("rollout.prompts_per_iteration", options.prompts)
        rows = rows_of(work.folder, 1, options.threads)
    publish("share", f"SmolLM2-135M, float32, {options.threads} thread(s), {options.prompts} prompts x 4", rows)


if __name__ == "__main__":
    main()
