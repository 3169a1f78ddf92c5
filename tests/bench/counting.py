"""Tokens and floating-point operations of an iteration that is on disk: those that its results need, and no others.

A prompt is read once for all of its completions; there are logits for each token of a completion; nothing is padded. A
product of a weight with a token costs two operations for each entry of the weight, its backward pass four more.
Attention is left out: at some hundred tokens it is a hundredth of the rest.
"""

import json
from pathlib import Path
from typing import Any

import polars as pl
from safetensors import safe_open

from stages.common.paths import iteration_name
from stages.common.tables import KEY

PASSES = {"rollout": 1, "score": 1, "update": 3}  # forward passes that a phase is worth


def tokens_of(folder: Path, iteration: int) -> dict[str, dict[str, int]]:
    """By phase: `read`, tokens through the body, and `told`, tokens of completions."""
    name = iteration_name(iteration)
    here = folder / "data" / "iterations" / name
    prompts = pl.read_parquet(folder / "data/prompts.parquet").select(
        "prompt_id", prompt=pl.col("prompt_ids").list.len().cast(pl.Int64)
    )
    advantages = pl.read_parquet(here / "advantages.parquet").select(*KEY, "advantage")
    rows = pl.read_parquet(here / "rollouts.parquet").join(prompts, on="prompt_id").join(advantages, on=KEY)
    counts = {phase: _count(rows) for phase in ("rollout", "score")}
    return {**counts, "update": _count(rows.filter(pl.col("advantage") != 0))}


def _count(rows: pl.DataFrame) -> dict[str, int]:
    told = int(rows["length"].sum())
    prompts = rows.group_by("prompt_id").agg(pl.col("prompt").first())["prompt"].sum()
    return {"read": told + int(prompts), "told": told}


def weights_of(model: Path) -> tuple[int, int]:
    """Entries of the matrices of the body, and of the head."""
    config: dict[str, Any] = json.loads((model / "config.json").read_text(encoding="utf-8"))
    head = int(config["vocab_size"]) * int(config["hidden_size"])
    body = 0
    for path in model.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  it is no dict
        body += sum(shape[0] * shape[1] for name, shape in shapes.items() if len(shape) == 2 and ".layers." in name)
    return body, head


def operations(tokens: dict[str, dict[str, int]], model: Path) -> dict[str, float]:
    """By phase."""
    body, head = weights_of(model)
    return {
        phase: 2.0 * PASSES[phase] * (body * count["read"] + head * count["told"]) for phase, count in tokens.items()
    }
