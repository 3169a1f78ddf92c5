"""Chat templates: a user's file in the place of the tokenizer's own, and what a template makes of a fixed conversation.

Tried when the model is imported: a template that cannot be rendered would otherwise fail with the first prompt.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from stages.common.chat import A_FIXED_DAY
from stages.common.params import Model, ParamsError

TURN = {"role": "user", "content": "What is 1 + 1?"}
CONVERSATION = [TURN, {"role": "assistant", "content": "2"}, {"role": "user", "content": "And 2 + 2?"}]


def rendered(tokenizer: Any, turns: list[dict[str, str]]) -> str:
    text: str = tokenizer.apply_chat_template(
        turns, tokenize=False, add_generation_prompt=True, strftime_now=A_FIXED_DAY.strftime
    )
    return text


def use_template(tokenizer: Any, settings: Model, option: str) -> None:
    """Take the file of `chat_template`, if there is one; a ParamsError names its line."""
    if settings.chat_template is None:
        check_own(tokenizer, option)
        return
    path = Path(settings.chat_template)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ParamsError(f"params.yaml: {option}.chat_template = {str(path)!r}: cannot be read: {error}") from None
    tokenizer.chat_template = text
    try:
        shown = rendered(tokenizer, [TURN])
    except Exception as error:  # whatever the template's own expressions raise
        line = _line(error)
        raise ParamsError(
            f"params.yaml: {option}.chat_template: {path}{f', line {line}' if line else ''}: cannot render a user's "
            f"turn: {type(error).__name__}: {error}"
        ) from None
    if TURN["content"] not in shown:
        raise ParamsError(f"params.yaml: {option}.chat_template: {path} leaves out what the user says")


def check_own(tokenizer: Any, option: str) -> None:
    """The tokenizer's own template at least has to be Jinja; which turns it refuses is told with the prompts."""
    try:
        if tokenizer.chat_template is not None:
            rendered(tokenizer, [TURN])
    except TemplateSyntaxError as error:
        raise ParamsError(
            f"the model's chat template is not valid, line {error.lineno}: {error}; mend it, or set "
            f"{option}.chat_template in params.yaml to a file of your own"
        ) from None
    except Exception:  # described() says what it refuses
        pass


def _line(error: BaseException) -> int | None:
    """Line of the template that an error comes from; Jinja writes it into the traceback."""
    if isinstance(error, TemplateSyntaxError):
        return error.lineno
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def described(tokenizer: Any) -> dict[str, str | None]:
    """Hashes of the template and of the conversation that it renders; or why it does not."""
    if tokenizer.chat_template is None:
        return {"template": None, "rendered": None}
    template = _hash(json.dumps(tokenizer.chat_template, sort_keys=True))
    try:
        return {"template": template, "rendered": _hash(rendered(tokenizer, CONVERSATION))}
    except (TemplateError, ValueError, TypeError) as error:
        return {"template": template, "rendered": None, "refuses": f"{type(error).__name__}: {error}"}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
