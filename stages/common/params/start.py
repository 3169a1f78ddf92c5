"""Sections `compute`, `prepare` and `policy`: what a run starts from, and where it computes."""

from typing import Annotated, Literal

from pydantic import Field

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


class Compute(Section):
    """Where and in what precision models run. `auto`: CUDA and bfloat16 where there is a GPU, CPU and float32 else."""

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: Literal["auto"] | Count = "auto"


class Model(Section):
    """The initial model: a folder, a hub id, or `package:NAME/FILE.gguf` for a GGUF inside an installed package."""

    source: str
    sha256: str | None = None


class Prompts(Section):
    """The embedded task: questions of the bank, each with one or two constraints, drawn by the weights of the kinds."""

    train: Count
    heldout: Count
    constraints: Annotated[dict[ConstraintKind, Positive], Field(min_length=2)]
    two_constraints: Annotated[float, Field(ge=0, le=1)]
    system: str | None = None


class Prepare(Section):
    """The initial model and the prompts."""

    model: Model
    prompts: Prompts


class Lora(Section):
    """Rank, scale (alpha / rank), names of the adapted linear layers, in how many of the last blocks (null: all)."""

    rank: Count
    alpha: Positive
    targets: Annotated[list[str], Field(min_length=1)]
    last_layers: Count | None = None


class Policy(Section):
    """What is trained: all weights (`full`), or a LoRA adapter over the frozen base (`lora`)."""

    method: Literal["lora", "full"]
    lora: Lora
