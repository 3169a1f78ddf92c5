"""The job that trainers are compared on: SmolLM2-135M, a few everyday questions, K = 4, short answers.

python -m tests.bench.job FOLDER      # makes its project there, for benches that take one by --folder
"""

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from stages.rollout.order import prompts_of
from tests.bench.measure import fresh, mark
from tests.workspace import ROOT, Workspace

PROMPTS, SAMPLES, NEW_TOKENS, BETA = 4, 4, 32, 0.05
RATE = {"full": 1e-6, "lora": 1e-4}
RANK = 16


def params(method: str, threads: int, prompts: int, samples: int) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text())
    made["compute"] |= {"device": "cpu", "dtype": "float32", "threads": threads}
    made["prepare"]["prompts"]["embedded"] |= {"train": 400, "heldout": 16}
    made["policy"] |= {"method": method}
    made["policy"]["lora"] |= {"rank": RANK, "alpha": RANK, "last_layers": None, "targets": ["q_proj", "v_proj"]}
    made["rollout"] |= {"prompts_per_iteration": prompts, "samples_per_prompt": samples, "max_new_tokens": NEW_TOKENS}
    made["rollout"] |= {"temperature": 1.0}
    made["score"]["kl"] |= {"beta": BETA}
    made["update"] |= {"learning_rate": RATE[method], "betas": [0.9, 0.999], "schedule": {"horizon": None}}
    return made


def workspace(folder: Path, method: str, threads: int, *, prompts: int = PROMPTS, samples: int = SAMPLES) -> Workspace:
    """A project with the model, prompts and initial policy ready, made anew."""
    made = Workspace(fresh(folder), params(method, threads, prompts, samples))
    mark(folder)
    made.plan(1)
    made.run("dvc", "repro", "prepare_policy", "critic_initial", "prepare_acceptance")
    return made


def shape_of_iteration() -> tuple[int, int]:
    """Prompts and samples of each, of the project in the working folder."""
    rollout = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))["rollout"]
    return int(rollout["prompts_per_iteration"]), int(rollout["samples_per_prompt"])


def prompts_of_iteration(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """The rows of data/prompts.parquet that iteration `number` samples from, in the working folder."""
    count, _ = shape_of_iteration()
    table = pl.read_parquet("data/prompts.parquet").filter(split="train")
    chosen = [prompt_id for _, prompt_id in prompts_of(table["prompt_id"].to_list(), seed, number, count)]
    by_id = {row["prompt_id"]: row for row in table.to_dicts()}
    return [by_id[prompt_id] for prompt_id in chosen]


def say(result: dict[str, Any]) -> None:
    """The child's result, on its last line."""
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    workspace(Path(sys.argv[1]), "full", 1)
