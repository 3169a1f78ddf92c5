"""A pair as the reference reads it: the prompt rendered like a training prompt, the answers ended like sampled ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from stages.common.chat import render, render_turns, tokenize
from stages.common.params import Rollout
from stages.preferences.shapes import RawPair, ShapeError, Turn
from stages.rollout.stopping import end_id, stop_ids


@dataclass(frozen=True)
class Reader:
    """What the tokens of a pair depend on. `end` ends an answer that does not end with one of `stops` already."""

    tokenizer: Any
    system: str | None
    end: int
    stops: frozenset[int]
    positions: int | None

    def columns(self, pair: RawPair) -> dict[str, Any]:
        """The pair's columns of the table; a ShapeError if this model cannot take it."""
        prompt_ids = tokenize(self.tokenizer, self.prompt_text(pair.turns))
        chosen_ids, rejected_ids = self.answer_ids(pair.chosen), self.answer_ids(pair.rejected)
        if chosen_ids == rejected_ids:
            raise ShapeError("chosen and rejected are the same tokens: such a pair says nothing; remove it")
        longest = len(prompt_ids) + max(len(chosen_ids), len(rejected_ids))
        if self.positions is not None and longest > self.positions:
            raise ShapeError(f"it has {longest} tokens, the model {self.positions} positions; shorten or remove it")
        return {
            "prompt": view(pair.turns),
            "prompt_ids": prompt_ids,
            "chosen": pair.chosen,
            "chosen_ids": chosen_ids,
            "rejected": pair.rejected,
            "rejected_ids": rejected_ids,
            "margin": pair.margin,
        }

    def prompt_text(self, turns: list[Turn]) -> str:
        """With the system turn of the training prompts, unless the conversation has one of its own."""
        system, rest = (turns[0]["content"], turns[1:]) if turns[0]["role"] == "system" else (self.system, turns)
        if self.tokenizer.chat_template is None:
            if len(rest) > 1:
                raise ShapeError("its prompt has several turns, but the model's tokenizer has no chat template")
            return render(self.tokenizer, rest[0]["content"], system)
        opening = [{"role": "system", "content": system}] if system else []
        try:
            return render_turns(self.tokenizer, opening + rest)
        except TemplateError as error:
            raise ShapeError(f"the model's chat template refuses its turns: {error}") from None

    def answer_ids(self, text: str) -> list[int]:
        """The text's tokens alone, as an answer is sampled after the prompt's, and one that ends it."""
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return ids if ids and ids[-1] in self.stops else [*ids, self.end]


def reader_of(tokenizer: Any, config: Any, rollout: Rollout, system: str | None) -> Reader:
    """The end of an answer is the first of `rollout.stop_tokens`; if that is null, the tokenizer's end of sequence."""
    stops, end = stop_ids(tokenizer, rollout), end_id(tokenizer, rollout)
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    return Reader(tokenizer, system, end, stops, positions)


def view(turns: Iterable[Turn]) -> str:
    """A prompt for people: the user's text if that is all the user said, else each turn after its role."""
    said = [turn for turn in turns if turn["role"] != "system"]
    if len(said) == 1:
        return said[0]["content"]
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in said)
