"""Demonstrations of a file as token ids: the prompt as prompts of training are rendered, and an end to the answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stages.common.chat import TurnsError, render, render_turns, templated, tokenize, turns_of
from stages.common.params import Params, Prompts
from stages.common.paths import BASE
from stages.common.positions import positions_in
from stages.common.tables import DEMONSTRATIONS
from stages.rollout.stopping import end_id, stop_ids
from stages.sft.records import Record
from stages.sft.shapes import Demonstration


@dataclass(frozen=True)
class Rendering:
    """What text becomes token ids with. `end_id` is appended to an answer that does not end with a stop token yet."""

    tokenizer: Any
    prompts: Prompts  # system turn, shots, and whether there is a template: as of training prompts
    end_id: int
    stop_ids: frozenset[int]
    positions: int | None  # of the model; null: it has no limit


def rendering_of(params: Params, tokenizer: Any) -> Rendering:
    """An answer ends with the first of `rollout.stop_tokens`, or the tokenizer's own end-of-sequence token."""
    stops, end = stop_ids(tokenizer, params.rollout, BASE), end_id(tokenizer, params.rollout, BASE)
    return Rendering(tokenizer, params.prepare.prompts, end, stops, positions_in(BASE))


def tokenized(demonstrations: Sequence[Demonstration], rendering: Rendering) -> pl.DataFrame:
    """The rows of the demonstrations table, all of them `train` as yet."""
    rows = [row_of(demonstration, rendering) for demonstration in demonstrations]
    return pl.DataFrame(rows, schema=DEMONSTRATIONS)


def row_of(demonstration: Demonstration, rendering: Rendering) -> dict[str, Any]:
    record, prompt = demonstration.record, demonstration.prompt
    prompt_ids = tokenize(rendering.tokenizer, prompt_text(demonstration, rendering), rendering.prompts.chat)
    completion, completion_ids = with_end(demonstration, rendering)
    check_positions(record, len(prompt_ids), len(completion_ids), rendering)
    return {
        "prompt_id": f"row-{record.row:06d}",
        "split": "train",
        "prompt": prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False),
        "prompt_ids": prompt_ids,
        "completion": completion,
        "completion_ids": completion_ids,
        "task_reward": None,
    }


def prompt_text(demonstration: Demonstration, rendering: Rendering) -> str:
    """The prompt as the model reads it, up to where the answer begins."""
    prompt, record, settings = demonstration.prompt, demonstration.record, rendering.prompts
    if isinstance(prompt, str):
        return render(rendering.tokenizer, prompt, settings.system, settings.few_shot, settings.chat)
    if not templated(rendering.tokenizer, settings.chat):
        why = "prepare.prompts.chat is raw" if settings.chat == "raw" else "the model has no chat template"
        raise record.wrong(f"a conversation, but {why}; give prompt and completion as strings")
    try:
        return render_turns(rendering.tokenizer, turns_of(prompt, settings.system, settings.few_shot))
    except TurnsError as error:
        raise record.wrong(f"the model's chat template refuses these turns: {error}") from None


def with_end(demonstration: Demonstration, rendering: Rendering) -> tuple[str, list[int]]:
    """The completion's text without its end, and its ids with it, exactly once."""
    text, tokenizer = demonstration.completion, rendering.tokenizer
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    if not ids or ids[-1] not in rendering.stop_ids:
        ids.append(rendering.end_id)
    else:
        text = text.removesuffix(tokenizer.convert_ids_to_tokens(ids[-1]))
    inside = [token for token in ids[:-1] if token in rendering.stop_ids]
    if inside:
        token = tokenizer.convert_ids_to_tokens(inside[0])
        raise demonstration.record.wrong(f"the completion has {token} before its end, where sampling would stop")
    if not text.strip():
        raise demonstration.record.wrong("the completion is empty but for its end; fill it in or remove the row")
    return text, ids


def check_positions(record: Record, prompt: int, completion: int, rendering: Rendering) -> None:
    if rendering.positions is not None and prompt + completion > rendering.positions:
        raise record.wrong(
            f"{prompt} tokens of prompt and {completion} of completion are more than the model's "
            f"{rendering.positions} positions; shorten or remove the row"
        )
