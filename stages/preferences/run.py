"""Stage `preferences`: a user's file, or answers of the reference -> data/preferences/<reward model>.parquet.

A reward model that exists already (`source`) is trained on nothing: its table is there and is empty.
"""

from pathlib import Path

import polars as pl

from stages.common import paths
from stages.common.gate import check_preferences
from stages.common.journal import Journal
from stages.common.params import Params, Preferences
from stages.common.policy import Models, load_config, load_tokenizer
from stages.common.rows import check_hash
from stages.common.tables import PREFERENCES, write_table
from stages.preferences.read import pairs_of_file
from stages.preferences.sampled import check_gold, sampled_pairs
from stages.preferences.split import add_split
from stages.preferences.tokens import reader_of

KEY = ("pair_id",)


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    options = params.reward_models[name].preferences
    table = pl.DataFrame(schema=PREFERENCES)
    if options is not None:
        option = f"reward_models.{name}.preferences"
        pairs = pairs_of(name, options, params, models, journal)
        table = add_split(pairs, options.heldout, params.seed, f"params.yaml: {option}")
        check_preferences(table)
    write_table(table, PREFERENCES, KEY, paths.preferences(name))
    journal.say(summary(table) if options is not None else "a reward model that exists: no pairs")


def pairs_of(name: str, options: Preferences, params: Params, models: Models, journal: Journal) -> pl.DataFrame:
    """The pairs from where params.yaml says, without a split yet."""
    tokenizer = load_tokenizer(paths.REFERENCE)
    if options.sampled is not None:
        check_gold(options.sampled, name)
        with models.reference() as model:
            return sampled_pairs(name, options.sampled, params, model, tokenizer, journal)
    assert options.file is not None
    path, config = Path(options.file), load_config(paths.REFERENCE)
    journal.say(f"{path}: sha256 {check_hash(path, options.sha256, f'reward_models.{name}.preferences')}")
    return pairs_of_file(path, reader_of(tokenizer, config, params.rollout, params.prepare.prompts), journal)


def summary(table: pl.DataFrame) -> str:
    """Pairs by split, the share that noise turned round, and what gold makes of the difference."""
    heldout = table.filter(split="heldout").height
    told = f"{table.height - heldout} pairs to train on, {heldout} held out"
    flipped, gold = table.select(
        pl.col("flipped").mean(), (pl.col("chosen_gold") - pl.col("rejected_gold")).mean()
    ).row(0)
    return told if gold is None else f"{told}; {flipped:.1%} flipped, mean gold of chosen less rejected {gold:.3f}"
