"""Prompts as the model reads them: turns through the chat template, and text into tokens."""

from datetime import datetime
from typing import Any

from jinja2 import TemplateError

from stages.common.params import ParamsError

A_FIXED_DAY = datetime(2024, 7, 26)  # for templates that write the date: what they render must not change with it


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
