"""What a reward function receives by name: TRL's `prompts`, `completions`, `completion_ids`, and every other column.

As in TRL, a prompt that is a conversation comes as its list of messages, and its completion as a list of one assistant
turn; a prompt that is a text, and its completion, come as texts. `completions` end before the end-of-sequence token,
which is removed by its position only; `finish_reason` says whether there was one. `prompt_tail` is what the template
opened at the end of the prompt, such as `<think>`: the completion goes on from there.
"""

from pathlib import Path
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.checked import checked

RENAMED = {"prompt": "prompts", "completion": "completions"}
HIDDEN = frozenset(
    {"messages", "prompt_text", "prompt_ids", "sampler_logprobs", "seed", "position", "entropy", "kind", "accepted"}
)
OF_ANSWERS = frozenset({"completions", "completion_ids", "finish_reason", "length", "sample", "iteration"})


def reward_inputs(rows: pl.DataFrame) -> dict[str, list[Any]]:
    """The columns of answers that are joined with their prompts, by the names that functions know."""
    inputs = {RENAMED.get(name, name): rows[name].to_list() for name in rows.columns if name not in HIDDEN}
    if "messages" not in rows.columns or rows["messages"].null_count() == rows.height:
        return inputs
    turns = rows["messages"].to_list()
    if "prompts" in inputs:
        inputs["prompts"] = [p if t is None else t for p, t in zip(inputs["prompts"], turns, strict=True)]
    if "completions" in inputs:
        inputs["completions"] = [
            text if t is None else [{"role": "assistant", "content": text}]
            for text, t in zip(inputs["completions"], turns, strict=True)
        ]
    return inputs


def columns_of(prompts: Path = paths.PROMPTS) -> set[str] | None:
    """The names of what functions receive, with the columns of the prompts table; None if that is not there."""
    if not prompts.exists():
        return None
    return {
        RENAMED.get(name, name) for name in pl.read_parquet_schema(checked(prompts)) if name not in HIDDEN
    } | OF_ANSWERS
