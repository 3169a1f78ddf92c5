"""One side of `against_trl`: the pipeline's stages in one warm process, from the second iteration on.

python -m tests.bench.own_stages FOLDER ITERATIONS   # the folder is one that `against_trl --folder` has made
"""

import os
import sys
import time

import polars as pl

from stages.common import paths
from stages.entry import run_stage
from tests.bench.job import say
from tests.bench.measure import peak_gigabytes

STAGES = ("rollout", "score", "advantage", "update")


def main(folder: str, iterations: int) -> None:
    os.chdir(folder)
    os.environ["RLOO_QUIET"] = "1"
    seconds: dict[str, list[float]] = {stage: [] for stage in STAGES}
    tokens = []
    for number in range(1, iterations + 2):  # the first one is the warm-up
        name = paths.iteration_name(number)
        for stage in STAGES:
            start = time.perf_counter()
            run_stage(stage, name)
            seconds[stage].append(time.perf_counter() - start)
        tokens.append(int(pl.read_parquet(paths.rollouts(name))["length"].sum()))
    say(
        {
            **{stage: taken[1:] for stage, taken in seconds.items()},
            "step": [sum(taken[i] for taken in seconds.values()) for i in range(1, iterations + 1)],
            "tokens": tokens[1:],
            "gigabytes": peak_gigabytes(),
        }
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]))
