"""A folder with a tiny base model, in which `prepare prompts` runs in this process."""

import json
from pathlib import Path

import polars as pl

from stages.common import paths
from stages.common.params_file import parse_params
from stages.common.policy import load_tokenizer
from stages.common.tables import PROMPTS, read_table
from stages.prepare.prompts.run import run
from tests.silent import Silent
from tests.tiny import save_tiny, tiny_tokenizer
from tests.workspace import tiny_params


class Project:
    """`monkeypatch` makes `folder` the working folder."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        monkeypatch.chdir(folder)
        save_tiny(paths.BASE)
        self.raw = tiny_params(paths.BASE)
        self.journal = Silent()

    def template(self, template: str | None) -> None:
        """Another chat template in the base, or none."""
        for path in paths.BASE.glob("chat_template*"):
            path.unlink()
        tokenizer = tiny_tokenizer(chat=False)
        tokenizer.chat_template = template
        tokenizer.save_pretrained(paths.BASE)

    def params(self, **prompts):
        self.raw["prepare"]["prompts"] = {"system": None, **prompts}
        return parse_params(self.raw, "params.yaml")

    def prepare(self, **prompts) -> pl.DataFrame:
        """The table that these options of `prepare.prompts` give."""
        self.journal = Silent()
        run(self.params(**prompts), self.journal)
        return read_table(paths.PROMPTS, PROMPTS, ("prompt_id",))

    def of_rows(self, rows, name="data.jsonl", **prompts) -> pl.DataFrame:
        """The same of a file with these rows (or this text); `file` adds to the options of the file."""
        write(Path(name), rows)
        return self.prepare(file={"train": name, "heldout_prompts": 1, **prompts.pop("file", {})}, **prompts)

    @property
    def report(self):
        return json.loads(paths.PROMPTS_JSON.read_text())

    def decoded(self, table: pl.DataFrame) -> list[str]:
        tokenizer = load_tokenizer(paths.BASE)
        return [tokenizer.decode(ids) for ids in table["prompt_ids"].to_list()]


def write(path: Path, rows) -> None:
    if isinstance(rows, pl.DataFrame):
        rows.write_parquet(path)
    elif isinstance(rows, (str, bytes)):
        path.write_bytes(rows.encode() if isinstance(rows, str) else rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
