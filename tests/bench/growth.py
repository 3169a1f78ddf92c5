"""How time and memory grow with K, prompts, the length of completions and the number of iterations.

    python -m tests.bench.growth [--method lora] [--folder PROJECT]

SmolLM2-135M in float32, one thread, one point after the other in processes of their own; no completion ends early. The
exponent is the slope of a straight line through the logarithms: 1 is proportional, 0 is no growth.
"""

import argparse
import tempfile
from math import log
from pathlib import Path
from statistics import linear_regression
from typing import Any

from tests.bench.job import workspace
from tests.bench.measure import in_child, middle, publish
from tests.workspace import Workspace

BASE = {"prompts_per_iteration": 2, "samples_per_prompt": 4, "max_new_tokens": 16}
POINTS = {
    "samples_per_prompt": (2, 4, 8, 16),
    "prompts_per_iteration": (2, 4, 8, 16),
    "max_new_tokens": (8, 16, 32, 64),
}
PHASES = ("rollout", "score", "update")
ITERATIONS = (1, 2, 4, 8)


def point(work: Workspace, changes: dict[str, int], iterations: int = 1) -> dict[str, float]:
    """Seconds by phase and the peak memory of an iteration after the first."""
    for key, value in {**BASE, **changes}.items():
        work.params["rollout"][key] = value
    work.params["rollout"]["stop_tokens"] = ["<|endoftext|>"]
    work.write_params()
    found = in_child("tests.bench.own_stages", str(work.folder), str(iterations), threads=1)
    return {
        **{phase: middle([found], phase) for phase in PHASES},
        "all": sum(found["step"]),
        "peak GB": found["gigabytes"],
    }


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    return float(linear_regression([log(size) for size in sizes], [log(value) for value in values]).slope)


def row(what: str, sizes: tuple[int, ...], points: list[dict[str, float]]) -> dict[str, Any]:
    made: dict[str, Any] = {"grows": what, "from": sizes[0], "to": sizes[-1]}
    for name in (*PHASES, "all", "peak GB"):
        values = [one[name] for one in points]
        unit = "" if name == "peak GB" else ", s"
        made |= {f"{name}{unit}": f"{values[0]:.3g} to {values[-1]:.3g}", f"{name}: exponent": exponent(sizes, values)}
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=("full", "lora"), default="lora", help="all weights, or adapters")
    parser.add_argument("--folder", type=Path, help="for the project, which is made anew")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = workspace(options.folder or Path(scratch) / "project", options.method, 1)
        rows = [row(name, sizes, [point(work, {name: size}) for size in sizes]) for name, sizes in POINTS.items()]
        rows.append(row("iterations", ITERATIONS, [point(work, {}, size) for size in ITERATIONS]))
    publish("growth", f"SmolLM2-135M, {options.method}, float32, one thread", rows)


if __name__ == "__main__":
    main()
