"""What an iteration costs beside its stages' work: called as functions, with a warm worker, and in cold processes.

    python -m tests.bench.overhead [--rounds 2]

A policy of a few kilobytes, so that the work itself is next to nothing. Functions: `run_stage` in one process. Warm:
`rloo train`, with DVC, Prefect and its resident worker. Cold: `dvc repro`, a process for each stage. The overhead is
the time from the start of an iteration's rollout to the start of the next one's, less what the journals of its stages
say they took: of cold processes that is mostly imports.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.job import say
from tests.bench.long_run import iteration_times, project
from tests.bench.measure import in_child, publish
from tests.workspace import Workspace

ITERATIONS = 6
WAYS = ("functions", "warm", "cold")


def called(folder: str) -> None:
    """One process: all stages of the run as functions."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    os.environ["RLOO_QUIET"] = "1"
    from pipeline.plan import read_plan
    from stages.entry import run_stage

    plan = read_plan()
    for name in plan.names:
        for stage in plan.stages_of(name):
            run_stage(stage.split("@")[0], name)
    run_stage("history", plan.last)
    say({})


def overheads(work: Workspace) -> list[float]:
    """Seconds, of each iteration but the first, the evaluated and the last."""
    times = iteration_times(work, ITERATIONS)
    return [times[i + 1][0] - times[i][0] - times[i][1] for i in range(1, ITERATIONS - 1)]


def run(way: str, folder: Path) -> tuple[list[float], list[float]]:
    """Overheads, and seconds of the stages themselves."""
    work = project(folder)
    work.run("rloo", "plan", str(ITERATIONS), "--evaluate-every", str(ITERATIONS))
    if way == "functions":
        work.run("dvc", "repro", "critic_initial", "prepare_acceptance", "evaluate@i0000")
        in_child("tests.bench.overhead", "--called", str(work.folder), threads=1)
    else:
        work.run(*{"warm": ("rloo", "train"), "cold": ("dvc", "repro")}[way])
    own = [seconds for _, seconds in iteration_times(work, ITERATIONS)[1 : ITERATIONS - 1]]
    return overheads(work), own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often all sides take their turn")
    parser.add_argument("--called", help="only the functions, in this project")
    options = parser.parse_args()
    if options.called:
        called(options.called)
        return
    found: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in WAYS}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.rounds):
            for way in WAYS:
                beside, own = run(way, Path(scratch) / f"{way}{number}")
                found[way][0].extend(beside)
                found[way][1].extend(own)
    rows: list[dict[str, Any]] = [
        {"way": way, "beside the stages, s": median(beside), "stages, s": median(own), "most, s": max(beside)}
        for way, (beside, own) in found.items()
    ]
    publish("overhead", "an iteration: rollout, score, advantage, update", rows)


if __name__ == "__main__":
    main()
