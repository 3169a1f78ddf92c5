"""Pairs that can be told apart: the chosen answer says `good`, the rejected one `bad`; and the files of a run."""

from pathlib import Path

import polars as pl
import torch
import yaml

from stages.common import paths
from stages.common.device import Runtime
from stages.common.params_file import parse_params
from stages.common.tables import PREFERENCES, PROMPTS, write_table
from tests.tiny import save_tiny, tiny_tokenizer
from tests.workspace import ROOT

RUNTIME = Runtime(torch.device("cpu"), torch.float32)
PREFERRED = {"preferences": {"file": "pairs.jsonl"}, "learning_rate": 1e-2, "epochs": 3, "batch_pairs": 4}
GOOD, BAD = 41, 73


def params(reward_models, rewards=None, **sections):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["reward_models"] = reward_models
    raw["evaluate"]["parts"] = None
    raw["policy"]["lora"] |= {"rank": 2, "alpha": 4, "last_layers": 1}
    raw["rollout"] |= {"stop_tokens": ["<|end|>"], "temperature": 1.0, "max_new_tokens": 6}
    raw["score"]["rewards"] = rewards or raw["score"]["rewards"]
    return parse_params(raw | sections, "params.yaml")


def pair(number, **more):
    """Prompts and answers of different lengths; the token that decides is anywhere but at the end."""
    filler = [100 + (number * 7 + i) % 50 for i in range(1 + number % 4)]
    row = dict.fromkeys(PREFERENCES)
    row |= {"pair_id": f"p{number:02d}", "split": "heldout" if number % 4 == 3 else "train", "prompt": "Why?"}
    row |= {"prompt_ids": [3, *filler], "chosen": "good", "chosen_ids": [GOOD, *filler, 0], "rejected": "bad"}
    return row | {"rejected_ids": [*filler, BAD, 5, 0]} | more


def table(count=16, **more):
    return pl.DataFrame([pair(number, **more) for number in range(count)], schema=PREFERENCES)


def lay_out(pairs=None, name="toy", prompts=6):
    """Reference, prompts and preferences in the current folder, as earlier stages leave them."""
    save_tiny(paths.REFERENCE)
    tokenizer = tiny_tokenizer()
    texts = [f"<|user|>question {number}<|end|><|assistant|>" for number in range(prompts)]
    rows = [
        {
            "prompt_id": f"q{i}",
            "split": "train" if i else "heldout",
            "prompt": f"question {i}",
            "prompt_text": text,
            "prompt_tail": "",
            "messages": None,
        }
        | {"prompt_ids": tokenizer(text, add_special_tokens=False)["input_ids"]}
        for i, text in enumerate(texts)
    ]
    write_table(pl.DataFrame(rows, schema=PROMPTS), PROMPTS, ("prompt_id",), paths.PROMPTS)
    made = table() if pairs is None else pairs
    write_table(made, PREFERENCES, ("pair_id",), paths.preferences(name))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
