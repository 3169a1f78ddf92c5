"""`sft demonstrations`: demonstrations.parquet, from the user's file or by the base itself; empty without `sft`."""

from pathlib import Path
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.journal import Journal
from stages.common.params import BestOf, Params, ParamsError
from stages.common.policy import load_model, load_tokenizer
from stages.common.rows import check_hash
from stages.common.tables import DEMONSTRATIONS, PROMPTS, read_table, write_table
from stages.sft.best_of import chosen_prompts, pick, sample_answers, scored
from stages.sft.records import read_records
from stages.sft.shapes import demonstrations_of, unread
from stages.sft.split import split_rows
from stages.sft.tokens import rendering_of, tokenized


def from_file(path: Path, sha256: str | None, params: Params, tokenizer: Any, journal: Journal) -> pl.DataFrame:
    records = read_records(path)
    journal.say(f"{path}: sha256 {check_hash(path, sha256, 'sft')}")
    demonstrations = demonstrations_of(records)
    if unread(records):
        journal.say(f"columns that are not read: {', '.join(unread(records))}")
    return tokenized(demonstrations, rendering_of(params, tokenizer))


def by_the_base(best_of: BestOf, params: Params, runtime: Runtime, tokenizer: Any, journal: Journal) -> pl.DataFrame:
    prompts = read_table(paths.PROMPTS, PROMPTS, ("prompt_id",)).filter(split="train")
    if prompts.height < best_of.prompts:
        raise ParamsError(
            f"params.yaml: sft.best_of.prompts = {best_of.prompts}: there are {prompts.height} training prompts"
        )
    chosen, finished = chosen_prompts(prompts, best_of.prompts, params.seed), 0

    def progress(more: int) -> None:
        nonlocal finished
        finished += more
        journal.progress(finished, best_of.prompts * best_of.samples, "answers ended")

    model = load_model(paths.BASE, runtime)
    answers = scored(sample_answers(model, tokenizer, chosen, params, best_of.samples, progress), params)
    return told(answers, best_of, journal)


def told(answers: pl.DataFrame, best_of: BestOf, journal: Journal) -> pl.DataFrame:
    """Pick, and say what was left out and what picking is worth."""
    picked = pick(answers)
    journal.say(
        f"{picked.rows.height} of {best_of.prompts} prompts have a demonstration; left out: {picked.unscorable} "
        f"without an answer that could be scored, {picked.unended} without one that also came to an end"
    )
    if picked.rows.is_empty():
        raise StageError(
            "no answer both came to an end and could be scored: raise rollout.max_new_tokens, sft.best_of.samples or "
            "sft.best_of.prompts in params.yaml, or take demonstrations from a file"
        )
    mean, best = (frame.select(pl.col("task_reward").mean()).item() for frame in (answers, picked.rows))
    journal.say(f"task reward {mean:.3f} over all answers, {best:.3f} over those picked")
    return picked.rows


def demonstrations(params: Params, runtime: Runtime, journal: Journal) -> pl.DataFrame:
    """The rows of the table, split into train and held out."""
    if params.sft is None:
        return pl.DataFrame(schema=DEMONSTRATIONS)
    tokenizer = load_tokenizer(paths.BASE)
    if params.sft.best_of is not None:
        rows = by_the_base(params.sft.best_of, params, runtime, tokenizer, journal)
    else:
        assert params.sft.file is not None
        rows = from_file(Path(params.sft.file), params.sft.sha256, params, tokenizer, journal)
    return split_rows(rows, params.sft.heldout, params.seed)


def run(params: Params, runtime: Runtime, journal: Journal) -> None:
    rows = demonstrations(params, runtime, journal)
    table = write_table(rows, DEMONSTRATIONS, ("prompt_id",), paths.DEMONSTRATIONS)
    if params.sft is None:
        journal.say("no fine-tuning, no demonstrations")
        return
    heldout = table.filter(split="heldout").height
    longest = int(table.select(pl.col("prompt_ids").list.len() + pl.col("completion_ids").list.len()).max().item())
    journal.say(f"{table.height - heldout} to train on, {heldout} held out; the longest has {longest} tokens")
