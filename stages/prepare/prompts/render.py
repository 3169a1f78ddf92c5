"""Prompts as the model reads them, and what its chat template leaves out of them."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from stages.common.chat import Turn, render, render_turns, tail_of, templated, tokenize_all, turns_of
from stages.common.journal import Journal
from stages.common.params import ParamsError, Prompts
from stages.prepare.prompts.assemble import PLACE, ROW

BATCH = 1000  # texts that are tokenised at once


def add_rendered(rows: pl.DataFrame, tokenizer: Any, settings: Prompts, journal: Journal) -> pl.DataFrame:
    """The rows with `prompt_text`, `prompt_tail` and `prompt_ids`."""
    prompts = _prompts(rows)
    texts = _rendered(rows, prompts, tokenizer, settings, journal)
    ids: list[list[int]] = []
    for first in range(0, len(texts), BATCH):
        ids += tokenize_all(tokenizer, texts[first : first + BATCH], settings.chat)
        journal.progress(len(ids), len(texts), "prompts tokenised")
    _check_some_tokens(rows, ids)
    return rows.with_columns(
        pl.Series("prompt_text", texts, dtype=pl.String),
        pl.Series("prompt_tail", [tail_of(tokenizer, text) for text in texts], dtype=pl.String),
        pl.Series("prompt_ids", ids, dtype=pl.List(pl.Int32)),
    )


def _prompts(rows: pl.DataFrame) -> list[str | list[Turn]]:
    """A text or turns for each row."""
    return [text if turns is None else turns for text, turns in rows.select("prompt", "messages").iter_rows()]


def _rendered(
    rows: pl.DataFrame, prompts: Sequence[str | list[Turn]], tokenizer: Any, settings: Prompts, journal: Journal
) -> list[str]:
    texts = []
    for (place, number), prompt in zip(rows.select(PLACE, ROW).iter_rows(), prompts, strict=True):
        try:
            texts.append(render(tokenizer, prompt, settings.system, settings.few_shot, settings.chat))
        except ParamsError as error:
            raise ParamsError(f"{error} ({place}: row {number})") from None
        journal.progress(len(texts), len(prompts), "prompts rendered")
    return texts


def _check_some_tokens(rows: pl.DataFrame, ids: Sequence[Sequence[int]]) -> None:
    for row, tokens in enumerate(ids):
        if not tokens:
            place, number = rows.select(PLACE, ROW).row(row)
            raise ParamsError(f"{place}: row {number}: the rendered prompt has no tokens; give it text")


def template_notes(rows: pl.DataFrame, tokenizer: Any, settings: Prompts) -> list[str]:
    """What the chat template does not say although it was given it; nothing where there is no template."""
    if not templated(tokenizer, settings.chat):
        return []
    prompts, texts = _prompts(rows), rows["prompt_text"].to_list()
    notes = _notes_on_options(prompts, texts, settings)
    silent = [
        row
        for row, prompt, text in zip(rows.select(PLACE, ROW).iter_rows(), rows["prompt"], texts, strict=True)
        if prompt.strip() not in text
    ]
    if silent:
        place, number = silent[0]
        notes.append(
            f"the chat template does not show {len(silent)} of {len(texts)} prompts word for word; first: "
            f"{place}: row {number}"
        )
    first = turns_of(prompts[0], settings.system, settings.few_shot)
    if render_turns(tokenizer, first, opened=False) == texts[0]:
        notes.append("the chat template has no generation prompt: where the answer begins, a prompt says nothing of it")
    return notes


def _notes_on_options(prompts: Sequence[str | list[Turn]], texts: Sequence[str], settings: Prompts) -> list[str]:
    notes, system = [], settings.system
    given = [text for prompt, text in zip(prompts, texts, strict=True) if not _brings_system(prompt)]
    if system and given and system.strip() not in given[0]:
        notes.append("the chat template does not show prepare.prompts.system: the model never reads it")
    for number, shot in enumerate(settings.few_shot, start=1):
        hidden = [side for side in ("user", "assistant") if getattr(shot, side).strip() not in texts[0]]
        if hidden:
            notes.append(
                f"the chat template does not show prepare.prompts.few_shot {number} ({', '.join(hidden)}) whole"
            )
    return notes


def _brings_system(prompt: str | list[Turn]) -> bool:
    return not isinstance(prompt, str) and prompt[0]["role"] == "system"
