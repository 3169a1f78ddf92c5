"""Seconds, tokens per second and peak memory of an iteration, against TRL's RLOOTrainer on the same work.

    python -m tests.bench.against_trl [--rounds 2] [--steps 2] [--method full|lora] [--threads 1] [--prompts 4]
        [--silent] [--plain]

Both train SmolLM2-135M in float32 from the same checkpoint on the same prompts, K = 4, at most 32 new tokens, with the
KL in the reward (but for `--silent`) and one optimizer step an iteration; in turn, A B A B.
This pipeline writes all that an iteration made, so that it can be resumed after it; TRL writes nothing, and in a row of
its own a checkpoint after each step. Needs the extra `[trl]`.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.job import PROMPTS, SAMPLES, workspace
from tests.bench.measure import in_child, middle, publish

TRL: dict[str, tuple[str, ...]] = {"TRL": (), "TRL, checkpointing": ("checkpointing",), "TRL, saving": ("saving",)}


def row(side: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    tokens = sum(sum(result["tokens"]) for result in results)
    step = sum(sum(result["step"]) for result in results)
    phases = {phase: middle(results, phase) for phase in ("rollout", "score", "update") if phase in results[0]}
    each = tokens / sum(len(result["step"]) for result in results)
    return {
        "trainer": side,
        "s/iter": middle(results, "step"),
        "tokens/s": tokens / step,
        "tokens/iter": each,
        "peak GB": middle(results, "gigabytes"),
        **{f"{phase} tokens/s": each / phases[phase] if phases else "" for phase in ("rollout", "score", "update")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often all sides take their turn")
    parser.add_argument("--steps", type=int, default=2, help="measured iterations of a turn, after one to warm up")
    parser.add_argument("--method", choices=("full", "lora"), default="full", help="all weights, or adapters")
    parser.add_argument("--threads", type=int, default=1, help="of each side")
    parser.add_argument("--prompts", type=int, default=PROMPTS, help=f"of an iteration, {SAMPLES} samples each")
    parser.add_argument("--silent", action="store_true", help="no KL, and for half of the prompts always one reward")
    parser.add_argument(
        "--plain", action="store_true", help="only TRL as it comes, without its rows of checkpointing and saving"
    )
    parser.add_argument("--folder", type=Path, help="for the project, which is made anew")
    options = parser.parse_args()
    others = {"TRL": TRL["TRL"]} if options.plain else TRL
    sides: dict[str, list[dict[str, Any]]] = {side: [] for side in ("this pipeline", *others)}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "project"
        workspace(folder, options.method, options.threads, prompts=options.prompts, silent=options.silent)
        for _ in range(options.rounds):
            arguments = (str(folder), str(options.steps))
            sides["this pipeline"].append(in_child("tests.bench.own_stages", *arguments, threads=options.threads))
            for side, how in others.items():
                found = in_child("tests.bench.usual_trainer", *arguments, options.method, *how, threads=options.threads)
                sides[side].append(found)
    rows = [row(side, results) for side, results in sides.items()]
    ours = rows[0]
    for one in rows:
        one["s/iter, x ours"] = one["s/iter"] / ours["s/iter"]
        one["s/token, x ours"] = ours["tokens/s"] / one["tokens/s"]
        one["GB, x ours"] = one["peak GB"] / ours["peak GB"]
    title = f"{options.method}, float32, {options.threads} thread(s), {options.prompts} prompts x {SAMPLES}"
    silent = "_silent" if options.silent else ""
    publish(f"against_trl_{options.method}_{options.prompts}{silent}", title + silent.replace("_", ", "), rows)


if __name__ == "__main__":
    main()
