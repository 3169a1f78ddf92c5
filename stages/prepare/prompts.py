"""`prepare prompts`: the embedded task as prompts.parquet. A question of the bank and one or two checkable constraints.

Held-out questions never occur in training: the questions are split first, then dressed with constraints.
"""

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
from jinja2 import TemplateError

from stages.common import paths
from stages.common.chat import A_FIXED_DAY
from stages.common.journal import Journal
from stages.common.params import Params, ParamsError, Prompts
from stages.common.policy import load_tokenizer
from stages.common.seeds import seed_of
from stages.common.tables import PROMPTS, write_table
from stages.prepare.constraints import draw_constraints, phrase

BANK = Path(__file__).with_name("questions.tsv")

CONSTRAINT = pl.Struct({"kind": pl.String(), "number": pl.Int64(), "text": pl.String()})
COLUMNS = {"question": pl.String(), "subject": pl.String(), "constraints": pl.List(CONSTRAINT)}


def question_bank() -> list[tuple[str, str]]:
    """(subject, question) of every question in the bank, in file order."""
    lines = BANK.read_text(encoding="utf-8").splitlines()[1:]
    return [(subject, question) for subject, question in (line.split("\t") for line in lines)]


def split_questions(
    bank: list[tuple[str, str]], heldout: int, seed: int
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Training and held-out questions; `heldout` prompts take one question each."""
    if heldout >= len(bank):
        raise ParamsError(
            f"params.yaml: prepare.prompts.heldout = {heldout}: the bank has {len(bank)} questions, "
            "and training needs some of them"
        )
    shuffled = sorted(bank, key=lambda row: seed_of(seed, "split", row[1]))
    return shuffled[heldout:], shuffled[:heldout]


def make_prompts(questions: list[tuple[str, str]], split: str, count: int, settings: Prompts, seed: int) -> list[Any]:
    """`count` prompts, going through the questions again and again with new constraints each time."""
    rows = []
    for number in range(count):
        subject, question = questions[number % len(questions)]
        prompt_id = f"{split}-{number:05d}"
        rng = Random(seed_of(seed, "constraints", prompt_id))
        wanted = 2 if rng.random() < settings.two_constraints else 1
        constraints = draw_constraints(settings.constraints, wanted, rng, forbidden_text=subject)
        prompt = " ".join([question, *map(phrase, constraints)])
        rows.append(
            {
                "prompt_id": prompt_id,
                "split": split,
                "prompt": prompt,
                "question": question,
                "subject": subject,
                "constraints": constraints,
            }
        )
    return rows


def render_turns(tokenizer: Any, turns: list[dict[str, str]]) -> str:
    """The turns as the model reads them, up to where the answer begins; a TemplateError if it refuses them."""
    text: str = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True, strftime_now=A_FIXED_DAY.strftime
    )
    return text


def render(tokenizer: Any, prompt: str, system: str | None) -> str:
    """The prompt as the model reads it, up to where the answer begins; plain text if there is no chat template."""
    if tokenizer.chat_template is None:
        return f"{system}\n\n{prompt}\n" if system else f"{prompt}\n"
    turns = [{"role": "system", "content": system}] if system else []
    try:
        return render_turns(tokenizer, [*turns, {"role": "user", "content": prompt}])
    except TemplateError as error:
        raise ParamsError(
            f"params.yaml: prepare.prompts.system: the model's chat template refuses these turns: {error}; "
            "null leaves the system turn out"
        ) from None


def tokenize(tokenizer: Any, text: str) -> list[int]:
    """Token ids. A chat template writes its special tokens itself; plain text gets those the tokenizer puts first."""
    if tokenizer.chat_template is not None:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    ids = list(tokenizer(text)["input_ids"])
    return ids[:-1] if ids and ids[-1] == tokenizer.eos_token_id else ids


def run(params: Params, journal: Journal) -> None:
    settings = params.prepare.prompts
    training, heldout = split_questions(question_bank(), settings.heldout, params.seed)
    rows = make_prompts(training, "train", settings.train, settings, params.seed)
    rows += make_prompts(heldout, "heldout", settings.heldout, settings, params.seed)
    tokenizer = load_tokenizer(paths.BASE)
    for row in rows:
        row["prompt_text"] = render(tokenizer, row["prompt"], settings.system)
        row["prompt_ids"] = tokenize(tokenizer, row["prompt_text"])
    table = pl.DataFrame(rows, schema={**PROMPTS, **COLUMNS})
    write_table(table, PROMPTS, ("prompt_id",), paths.PROMPTS)
    journal.say(
        f"{settings.train} training prompts over {len(training)} questions, {settings.heldout} held out; "
        f"longest prompt {max(map(len, table['prompt_ids']))} tokens"
    )
