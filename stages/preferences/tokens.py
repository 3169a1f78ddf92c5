"""A pair as the reference reads it: the prompt rendered like a training prompt, the answers ended like sampled ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stages.common.chat import TurnsError, render, render_turns, templated, tokenize, turns_of
from stages.common.params import Prompts, Rollout
from stages.common.positions import positions_of
from stages.common.turns import Turn
from stages.preferences.shapes import RawPair, ShapeError
from stages.rollout.stopping import end_id, stop_ids


@dataclass(frozen=True)
class Reader:
    """What the tokens of a pair depend on: `prompts` says how training prompts are rendered; `end` ends an answer that
    does not end with one of `stops` already.
    """

    tokenizer: Any
    prompts: Prompts
    end: int
    stops: frozenset[int]
    positions: int | None

    def columns(self, pair: RawPair) -> dict[str, Any]:
        """The pair's columns of the table; a ShapeError if this model cannot take it."""
        prompt_ids = tokenize(self.tokenizer, self.prompt_text(pair.turns), self.prompts.chat)
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
        """Rendered like a training prompt, with its system turn unless the conversation has one of its own."""
        prompts = self.prompts
        if templated(self.tokenizer, prompts.chat):
            try:
                return render_turns(self.tokenizer, turns_of(turns, prompts.system, prompts.few_shot))
            except TurnsError as error:
                raise ShapeError(f"the model's chat template refuses its turns: {error}") from None
        system, rest = (turns[0]["content"], turns[1:]) if turns[0]["role"] == "system" else (prompts.system, turns)
        if len(rest) > 1 or (prompts.chat == "raw" and len(turns) > 1):
            why = (
                "prepare.prompts.chat is raw" if prompts.chat == "raw" else "the model's tokenizer has no chat template"
            )
            raise ShapeError(f"its prompt has several turns, but {why}")
        return render(self.tokenizer, rest[0]["content"], system, prompts.few_shot, prompts.chat)

    def answer_ids(self, text: str) -> list[int]:
        """The text's tokens alone, as an answer is sampled after the prompt's, and one that ends it."""
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return ids if ids and ids[-1] in self.stops else [*ids, self.end]


def reader_of(tokenizer: Any, config: Any, rollout: Rollout, prompts: Prompts) -> Reader:
    """The end of an answer is the first of `rollout.stop_tokens`; if that is null, the tokenizer's end of sequence."""
    stops, end = stop_ids(tokenizer, rollout), end_id(tokenizer, rollout)
    return Reader(tokenizer, prompts, end, stops, positions_of(config))


def view(turns: Iterable[Turn]) -> str:
    """A prompt for people: the user's text if that is all the user said, else each turn after its role."""
    said = [turn for turn in turns if turn["role"] != "system"]
    if len(said) == 1:
        return said[0]["content"]
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in said)
