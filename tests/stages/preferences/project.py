"""A project folder with a tiny reference and a few prompts, in which the stage runs in this process."""

import json
from pathlib import Path

import polars as pl

from stages.common import paths
from stages.common.chat import render, tokenize
from stages.common.device import set_up
from stages.common.journal import Journal
from stages.common.params import Compute
from stages.common.params_file import parse_params
from stages.common.policy import Models, load_tokenizer
from stages.common.tables import PREFERENCES, PROMPTS, read_table, write_table
from stages.preferences.run import run
from tests.tiny import save_tiny
from tests.workspace import tiny_params


class Project:
    """`monkeypatch` makes `folder` the working folder."""

    def __init__(self, folder: Path, monkeypatch, prompts: int = 24) -> None:
        monkeypatch.chdir(folder)
        save_tiny(paths.REFERENCE)
        self.raw = tiny_params(paths.REFERENCE)
        self.raw["prepare"]["prompts"]["embedded"]["train"] = prompts
        self.write_prompts(prompts)
        self.said: list[str] = []
        self.models = Models(set_up(Compute(device="cpu", threads=1)))

    def write_prompts(self, count: int) -> None:
        tokenizer, system = load_tokenizer(), self.raw["prepare"]["prompts"]["system"]
        rows = []
        for number in range(count + 2):
            text = render(tokenizer, f"Question {number}?", system)
            split = "train" if number < count else "heldout"
            key = {"prompt_id": f"{split}-{number:05d}", "split": split, "prompt": f"Question {number}?"}
            rows.append(
                key
                | {
                    "prompt_text": text,
                    "prompt_tail": "",
                    "messages": None,
                    "prompt_ids": tokenize(tokenizer, text),
                    "wanted": number % 3,
                }
            )
        write_table(pl.DataFrame(rows), PROMPTS, ("prompt_id",), paths.PROMPTS)

    def pairs(self, name: str = "gold", **options) -> pl.DataFrame:
        """The table of a reward model with these preferences."""
        self.raw["reward_models"] = {name: {"preferences": options}}
        return self.run(name)

    def run(self, name: str) -> pl.DataFrame:
        journal = Journal("preferences", name)
        self.said = []
        journal.say = self.said.append
        run(name, parse_params(self.raw, "params.yaml"), self.models, journal)
        return read_table(paths.preferences(name), PREFERENCES, ("pair_id",))


def write_lines(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)
