"""Prompts and completions as text. For a prompt that is a text TRL hands a completion as a text, and for one that is a
conversation as a list of one assistant turn; reward functions that live here take both.
"""

from typing import Any


def text_of(completion: Any) -> str:
    """The text of a completion in either form."""
    return completion if isinstance(completion, str) else "".join(str(turn["content"]) for turn in completion)


def prompt_text(prompt: Any) -> str:
    """The text of a prompt in either form; of a conversation of several turns each begins with its role."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return str(prompt[0]["content"])
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in prompt)
