"""`prepare prompts`: prompts.parquet."""

import polars as pl

from stages.common import paths
from stages.common.chat import render, tokenize
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.policy import load_tokenizer
from stages.common.tables import PROMPTS, write_table
from stages.common.write_json import write_json
from stages.prepare.prompts.embedded import COLUMNS, make_prompts, question_bank, split_questions


def run(params: Params, journal: Journal) -> None:
    settings, system = params.prepare.prompts.embedded, params.prepare.prompts.system
    assert settings is not None
    training, heldout = split_questions(question_bank(), settings.heldout, params.seed)
    rows = make_prompts(training, "train", settings.train, settings, params.seed)
    rows += make_prompts(heldout, "heldout", settings.heldout, settings, params.seed)
    tokenizer = load_tokenizer(paths.BASE)
    for row in rows:
        row["prompt_text"] = render(tokenizer, row["prompt"], system)
        row["prompt_ids"] = tokenize(tokenizer, row["prompt_text"])
    table = pl.DataFrame(rows, schema={**PROMPTS, **COLUMNS})
    write_table(table, PROMPTS, ("prompt_id",), paths.PROMPTS)
    with publish(paths.PROMPTS_JSON) as scratch:
        write_json({"prompts": table.height}, scratch)
    journal.say(
        f"{settings.train} training prompts over {len(training)} questions, {settings.heldout} held out; "
        f"longest prompt {max(map(len, table['prompt_ids']))} tokens"
    )
