"""Critics over tiny models, and rows that they learn from."""

import polars as pl
import torch

from stages.common.critic import Critic, headed
from stages.common.device import Runtime
from stages.common.packing import Group

CPU = Runtime(torch.device("cpu"), torch.float32)
GROUPS = [
    Group([11, 12, 13, 14], [[21, 22, 0], [23], [24, 25, 26, 27, 28]], [0, 1, 2]),
    Group([15], [[31, 32], [0]], [3, 4]),
    Group([16, 17, 18, 19, 20, 21, 22], [[41, 42, 43]], [5]),
]
ROWS = [(group.prompt_ids, completion) for group in GROUPS for completion in group.completions]


def critic_over(model, folder):
    """A critic with a random head; all weights are trained."""
    model.save_pretrained(folder)
    made = headed(folder, CPU)
    torch.manual_seed(5)
    with torch.no_grad():
        made.score.weight.normal_(std=0.3)
    return Critic(made.requires_grad_(True), None)


def rows_to_learn():
    """As the update joins them: values and returns of each token, made up."""
    rows = [
        {
            "prompt_id": f"p{len(prompt)}",
            "prompt_ids": prompt,
            "completion_ids": completion,
            "values": [0.1 * (token % 7) for token in completion],
            "returns": [0.3 + 0.05 * (token % 11) for token in completion],
            "token_advantages": [0.5] * len(completion),
        }
        for prompt, completion in ROWS
    ]
    lists = dict.fromkeys(("values", "returns", "token_advantages"), pl.List(pl.Float32))
    keys = {"iteration": 1, "sample": 0, "kind": "sample"}
    return pl.DataFrame([keys | row for row in rows], schema_overrides=lists)
