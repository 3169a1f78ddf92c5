"""The embedded task: a question of the bank and one or two checkable constraints.

Held-out questions never occur in training: the questions are split first, then dressed with constraints.
"""

from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from stages.common.params import Embedded, ParamsError
from stages.common.seeds import seed_of
from stages.prepare.prompts.columns import Part
from stages.prepare.prompts.constraints import draw_constraints, phrase

BANK = Path(__file__).with_name("questions.tsv")

PLACE = "the embedded generator"
CONSTRAINT = pl.Struct({"kind": pl.String(), "number": pl.Int64(), "text": pl.String()})
COLUMNS = dict.fromkeys(("prompt_id", "prompt", "question", "subject"), pl.String()) | {
    "constraints": pl.List(CONSTRAINT)
}


def parts(settings: Embedded, seed: int) -> tuple[Part, Part]:
    """Training and held-out prompts."""
    training, heldout = split_questions(question_bank(), settings.heldout, seed)
    notes = [f"the training prompts go over {len(training)} questions, none of which is held out"]
    return (
        _part(make_prompts(training, "train", settings.train, settings, seed), notes),
        _part(make_prompts(heldout, "heldout", settings.heldout, settings, seed), []),
    )


def _part(rows: list[dict[str, Any]], notes: list[str]) -> Part:
    frame = pl.DataFrame([{name: row[name] for name in COLUMNS} for row in rows], schema=COLUMNS)
    return Part(PLACE, list(range(1, len(rows) + 1)), frame, notes)


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
            f"params.yaml: prepare.prompts.embedded.heldout = {heldout}: the bank has {len(bank)} questions, "
            "and training needs some of them"
        )
    shuffled = sorted(bank, key=lambda row: seed_of(seed, "split", row[1]))
    return shuffled[heldout:], shuffled[:heldout]


def make_prompts(questions: list[tuple[str, str]], split: str, count: int, settings: Embedded, seed: int) -> list[Any]:
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
