"""Prompts as the model reads them: turns through the chat template, and text into tokens."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from jinja2 import TemplateError

from stages.common.params import ParamsError, Shot

A_FIXED_DAY = datetime(2024, 7, 26)  # for templates that write the date: what they render must not change with it
OPENED = re.compile(r"<([A-Za-z_][\w.:-]*)>\s*\Z")

Turn = dict[str, str]
Style = Literal["auto", "template", "raw"]


class TurnsError(TemplateError):
    """The chat template cannot render these turns, in whatever way it failed."""


def render_turns(tokenizer: Any, turns: Sequence[Turn], *, opened: bool = True) -> str:
    """The turns as the model reads them, up to where the answer begins (unless not `opened`); a TurnsError if the
    template refuses them or breaks on them.
    """
    try:
        text: str = tokenizer.apply_chat_template(
            list(turns), tokenize=False, add_generation_prompt=opened, strftime_now=A_FIXED_DAY.strftime
        )
    except TemplateError as error:
        raise TurnsError(str(error)) from None
    except Exception as error:  # a template is a program, and fails as programs do
        raise TurnsError(f"{type(error).__name__}: {error}") from None
    return text


def templated(tokenizer: Any, chat: Style) -> bool:
    """Whether prompts go through the tokenizer's chat template."""
    if chat == "template" and tokenizer.chat_template is None:
        raise ParamsError(
            "params.yaml: prepare.prompts.chat = 'template': the model's tokenizer has no chat template; give one in "
            "prepare.model.chat_template, or set chat to auto or raw"
        )
    return chat != "raw" and tokenizer.chat_template is not None


def turns_of(prompt: str | Sequence[Turn], system: str | None, few_shot: Sequence[Shot]) -> list[Turn]:
    """All turns of a prompt: a system turn (its own, or `system`), the shots, and what the prompt says."""
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    opening = [{"role": "system", "content": system}] if system else []
    if turns and turns[0]["role"] == "system":
        opening, turns = turns[:1], turns[1:]
    shots = [
        turn
        for shot in few_shot
        for turn in ({"role": "user", "content": shot.user}, {"role": "assistant", "content": shot.assistant})
    ]
    return [*opening, *shots, *turns]


def render(
    tokenizer: Any,
    prompt: str | Sequence[Turn],
    system: str | None,
    few_shot: Sequence[Shot] = (),
    chat: Style = "auto",
) -> str:
    """The prompt, a text or turns, as the model reads it, up to where the answer begins.

    Without a template a text stays plain: system, shots and prompt, and a line break where the answer begins; `raw`
    takes it as it is. Turns need a template.
    """
    if templated(tokenizer, chat):
        return _by_template(tokenizer, prompt, system, few_shot)
    if not isinstance(prompt, str):
        why = "chat is raw" if chat == "raw" else "the model's tokenizer has no chat template"
        raise ParamsError(
            f"params.yaml: prepare.model.chat_template: prompts are turns of a conversation, but {why}; "
            "give a template, or prompts that are texts"
        )
    if chat == "raw":
        return prompt
    shots = "".join(f"{shot.user}\n{shot.assistant}\n\n" for shot in few_shot)
    return f"{system}\n\n{shots}{prompt}\n" if system else f"{shots}{prompt}\n"


def _by_template(tokenizer: Any, prompt: str | Sequence[Turn], system: str | None, few_shot: Sequence[Shot]) -> str:
    try:
        return render_turns(tokenizer, turns_of(prompt, system, few_shot))
    except TurnsError as error:
        option, remedy = _to_blame(tokenizer, prompt, system, few_shot)
        raise ParamsError(
            f"params.yaml: {option}: the model's chat template refuses these turns: {error}; {remedy}"
        ) from None


def _to_blame(
    tokenizer: Any, prompt: str | Sequence[Turn], system: str | None, few_shot: Sequence[Shot]
) -> tuple[str, str]:
    """The option without which the template would render the prompt, and what to do."""
    without = [
        (system, (None, few_shot), "prepare.prompts.system", "null leaves the system turn out"),
        (few_shot, (system, ()), "prepare.prompts.few_shot", "[] leaves these turns out"),
    ]
    for present, (other_system, other_shots), option, remedy in without:
        if present and _renders(tokenizer, turns_of(prompt, other_system, other_shots)):
            return option, remedy
    return "prepare.model.chat_template", "change the prompt, or give a template that takes it"


def _renders(tokenizer: Any, turns: Sequence[Turn]) -> bool:
    try:
        render_turns(tokenizer, turns)
    except TurnsError:
        return False
    return True


def tail_of(tokenizer: Any, text: str) -> str:
    """The run of tags that the end of a rendered prompt opens, such as `<think>` and a line break; "" if there is none.

    Special tokens that look like tags are none.
    """
    special, begins = set(tokenizer.all_special_tokens), len(text)
    while (tag := OPENED.search(text, 0, begins)) and tag.group().rstrip() not in special:
        begins = tag.start()
    return text[begins:]


def opening_ids(tokenizer: Any) -> list[int]:
    """The special tokens that the tokenizer puts before a plain text, such as the beginning of a sequence."""
    whole, plain = tokenizer("a")["input_ids"], tokenizer("a", add_special_tokens=False)["input_ids"]
    places = (place for place in range(len(whole)) if whole[place : place + len(plain)] == plain)
    return list(whole[: next(places, 0)])


def tokenize_all(tokenizer: Any, texts: Sequence[str], chat: Style = "auto") -> list[list[int]]:
    """Token ids of rendered prompts. A chat template writes its special tokens itself; another text gets those that the
    tokenizer puts first, unless it begins with them already. None is put last.
    """
    if not texts:
        return []
    found: list[list[int]] = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)["input_ids"]
    opening = [] if templated(tokenizer, chat) else opening_ids(tokenizer)
    return [ids if ids[: len(opening)] == opening else [*opening, *ids] for ids in found]


def tokenize(tokenizer: Any, text: str, chat: Style = "auto") -> list[int]:
    """Token ids of one rendered prompt."""
    return tokenize_all(tokenizer, [text], chat)[0]
