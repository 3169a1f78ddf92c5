"""The job that trainers are compared on: SmolLM2-135M, a few everyday questions, K = 4, short answers.

python -m tests.bench.job FOLDER      # makes its project there, for benches that take one by --folder
"""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from stages.rollout.order import prompts_of
from stages.score.constraints import reward
from tests.bench.measure import fresh, mark
from tests.workspace import ROOT, Workspace

PROMPTS, SAMPLES, NEW_TOKENS, BETA = 4, 4, 32, 0.05
RATE = {"full": 1e-6, "lora": 1e-4}
RANK = 16
SILENT = "half.py"
HALF = '''"""The constraints' reward for half of the prompts, and always the same for the others."""

from zlib import crc32

from stages.score.constraints import reward


def half(completions, subject, **columns):
    found = reward(completions=completions, subject=subject, **columns)
    return [0.5 if crc32(of.encode()) % 2 else value for of, value in zip(subject, found)]
'''


def params(method: str, threads: int, prompts: int, samples: int, *, silent: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text())
    made["compute"] |= {"device": "cpu", "dtype": "float32", "threads": threads}
    made["prepare"]["prompts"]["embedded"] |= {"train": 400, "heldout": 16}
    made["policy"] |= {"method": method}
    made["policy"]["lora"] |= {"rank": RANK, "alpha": RANK, "last_layers": None, "targets": ["q_proj", "v_proj"]}
    made["rollout"] |= {"prompts_per_iteration": prompts, "samples_per_prompt": samples, "max_new_tokens": NEW_TOKENS}
    made["rollout"] |= {"temperature": 1.0}
    made["score"]["kl"] |= {"beta": 0.0 if silent else BETA}
    if silent:
        made["score"]["rewards"] = {"half": {"function": f"{SILENT}:half", "weight": 1.0}}
    made["update"] |= {"learning_rate": RATE[method], "betas": [0.9, 0.999], "schedule": {"horizon": None}}
    return made


def workspace(
    folder: Path, method: str, threads: int, *, prompts: int = PROMPTS, samples: int = SAMPLES, silent: bool = False
) -> Workspace:
    """A project with the model, prompts and initial policy ready, made anew. `silent`: without KL, and rewards that
    are all the same for half of the prompts.
    """
    made = Workspace(fresh(folder), params(method, threads, prompts, samples, silent=silent))
    mark(folder)
    if silent:
        (folder / SILENT).write_text(HALF, encoding="utf-8")
    made.plan(1)
    made.run("dvc", "repro", "prepare_policy", "critic_initial", "prepare_acceptance")
    return made


def shape_of_iteration() -> tuple[int, int]:
    """Prompts and samples of each, of the project in the working folder."""
    rollout = _params_here()["rollout"]
    return int(rollout["prompts_per_iteration"]), int(rollout["samples_per_prompt"])


def _params_here() -> Any:
    return yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))


def reward_and_beta() -> tuple[Any, float]:
    """The project's reward function and KL weight, for a trainer of another kind."""
    beta = float(_params_here()["score"]["kl"]["beta"])
    return (runpy.run_path(SILENT)["half"] if Path(SILENT).exists() else reward), beta


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
