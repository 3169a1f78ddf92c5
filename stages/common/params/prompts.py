"""Section `prepare.prompts`: where the prompts come from, how they are read, and how they become the model's turns."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from stages.common.params.base import Count, Positive, Section

ConstraintKind = Literal[
    "title",
    "max_words",
    "no_commas",
    "postscript",
    "sentences",
    "bullets",
    "highlight",
    "keyword",
    "start_phrase",
    "ends_question",
    "exclamation",
    "digits",
    "min_words",
    "lowercase",
    "uppercase",
    "avoid_word",
    "end_phrase",
    "quotation",
    "parentheses",
    "json",
]
SOURCES = ("embedded", "file", "dataset", "gym")
ColumnType = Literal["string", "integer", "number", "boolean", "any"]


class Embedded(Section):
    """The embedded task: questions of the bank, each with one or two constraints, drawn by the weights of the kinds."""

    train: Count
    heldout: Count
    constraints: Annotated[dict[ConstraintKind, Positive], Field(min_length=2)]
    two_constraints: Annotated[float, Field(ge=0, le=1)]


class Columns(Section):
    """How the columns of a user's data are read, and how many rows are taken.

    `rename`: {name in the data: name here}, such as {question: prompt}. `columns`: the declared schema, {name here:
    type}, `prompt` and `prompt_id` aside; the data must have exactly these. null: all columns, of the types found.
    `train_prompts` and `heldout_prompts`: how many are taken, by a seeded shuffle; null: all there are.
    """

    rename: dict[str, str] = Field(default_factory=dict)
    columns: dict[str, ColumnType] | None = None
    train_prompts: Count | None = None
    heldout_prompts: Count | None = None


class PromptFile(Columns):
    """JSON Lines, a JSON array, CSV or Parquet. Without a file `heldout`, `heldout_prompts` of `train` are held out."""

    train: str
    heldout: str | None = None

    @model_validator(mode="after")
    def _something_is_held_out(self) -> "PromptFile":
        if self.heldout is None and self.heldout_prompts is None:
            raise ValueError("evaluation needs held-out prompts: name a file `heldout`, or set `heldout_prompts`")
        return self


class PromptDataset(Columns):
    """A dataset of the library `datasets`: a folder that it saved, or a hub id (with `name` and `revision`)."""

    path: str
    name: str | None = None
    revision: str | None = None
    train_split: str = "train"
    heldout_split: str | None = None

    @model_validator(mode="after")
    def _something_is_held_out(self) -> "PromptDataset":
        if self.heldout_split is None and self.heldout_prompts is None:
            raise ValueError("evaluation needs held-out prompts: name a `heldout_split`, or set `heldout_prompts`")
        return self


class Gym(Section):
    """A task of reasoning-gym by name, with its config. The held-out prompts come after the training ones; no question
    comes twice.
    """

    task: str
    config: dict[str, Any] = Field(default_factory=dict)
    seed: Annotated[int, Field(ge=0)] = 0
    train: Count
    heldout: Count


class Shot(Section):
    """One turn of each side, before the prompt."""

    user: str
    assistant: str


class Verify(Section):
    """Golden answers are scored by one of `score.rewards`, as if they were completions: `completion` is the text, with
    the columns of a prompt in braces, such as `#### {answer}`. `failing`: what happens to prompts whose golden answer
    does not get `full`, what that reward gives a right answer before its weight.
    """

    reward: str
    completion: str
    full: float = 1.0
    failing: Literal["report", "drop", "refuse"] = "report"


class Prompts(Section):
    """The prompts of a run, from one of four sources: `embedded`, `file`, `dataset`, `gym`.

    `system`: a first turn, for prompts that bring none. `few_shot`: turns between it and the prompt. `chat`: `template`
    renders turns by the tokenizer's chat template, `raw` takes texts as they are, and `auto` is `template` where the
    tokenizer has one, else plain text with a line break after it. `max_tokens`: of a rendered prompt; null: as many as
    the model's positions leave beside `rollout.max_new_tokens`. Prompts over it are refused, or dropped and reported
    (`too_long`); none is cut.
    """

    embedded: Embedded | None = None
    file: PromptFile | None = None
    dataset: PromptDataset | None = None
    gym: Gym | None = None
    system: str | None = None
    few_shot: list[Shot] = Field(default_factory=list)
    chat: Literal["auto", "template", "raw"] = "auto"
    max_tokens: Count | None = None
    too_long: Literal["refuse", "drop"] = "refuse"
    verify: Verify | None = None

    @property
    def declared_train(self) -> int | None:
        """How many training prompts there are, where params.yaml says it; null: only the data can tell."""
        if self.embedded is not None:
            return self.embedded.train
        return self.gym.train if self.gym is not None else None

    @model_validator(mode="before")
    @classmethod
    def _one_source(cls, raw: Any) -> Any:
        """Before the sources are looked at: what is wrong in one that should be null is beside the point."""
        found = [name for name in SOURCES if isinstance(raw, dict) and raw.get(name) is not None]
        if isinstance(raw, dict) and len(found) != 1:
            there = f"{' and '.join(found)} are set" if found else "none is set"
            raise ValueError(f"prompts have one source of {', '.join(SOURCES)}, the others are null; {there}")
        return raw

    @model_validator(mode="after")
    def _raw_has_no_turns(self) -> "Prompts":
        if self.chat == "raw" and (self.system is not None or self.few_shot):
            raise ValueError("chat raw takes prompts as they are: set system to null and few_shot to []")
        return self
