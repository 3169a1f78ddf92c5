"""Seconds, tokens per second and peak memory of an iteration, against TRL's RLOOTrainer on the same work.

    python -m tests.bench.against_trl [--rounds 2] [--steps 2] [--method full|lora] [--threads 1]

Both train SmolLM2-135M in float32 from the same checkpoint on the same prompts, with the KL in the reward and one
optimizer step an iteration; in turn, A B A B. Needs the extra `[trl]`.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.job import workspace
from tests.bench.measure import in_child, middle, publish


def row(side: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    tokens = sum(sum(result["tokens"]) for result in results)
    step = sum(sum(result["step"]) for result in results)
    phases = {phase: middle(results, phase) for phase in ("rollout", "score", "update") if phase in results[0]}
    return {
        "trainer": side,
        "seconds an iteration": middle(results, "step"),
        "tokens a second": tokens / step,
        "tokens an iteration": tokens / sum(len(result["step"]) for result in results),
        "peak GB": middle(results, "gigabytes"),
        **{f"{phase} s": phases.get(phase, float("nan")) for phase in ("rollout", "score", "update")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--method", choices=("full", "lora"), default="full")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    sides: dict[str, list[dict[str, Any]]] = {"this pipeline": [], "TRL": [], "TRL, gradient checkpointing": []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        workspace(folder, options.method, options.threads)
        for _ in range(options.rounds):
            arguments = (str(folder), str(options.steps))
            sides["this pipeline"].append(in_child("tests.bench.own_stages", *arguments, threads=options.threads))
            for side, checkpointing in (("TRL", "no"), ("TRL, gradient checkpointing", "yes")):
                found = in_child(
                    "tests.bench.usual_trainer", *arguments, options.method, checkpointing, threads=options.threads
                )
                sides[side].append(found)
    rows = [row(side, results) for side, results in sides.items()]
    ours = rows[0]["seconds an iteration"], rows[0]["peak GB"]
    for one in rows:
        one["times ours"] = one["seconds an iteration"] / ours[0]
        one["memory, times ours"] = one["peak GB"] / ours[1]
    publish(f"against_trl_{options.method}", f"{options.method}, float32, {options.threads} thread(s)", rows)


if __name__ == "__main__":
    main()
