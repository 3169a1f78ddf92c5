"""Sections `compute`, `prepare` and `policy`: what a run starts from, and where it computes."""

from typing import Annotated, Literal

from pydantic import Field

from stages.common.params.base import Count, Positive, Section
from stages.common.params.prompts import Prompts


class Compute(Section):
    """Where and in what precision models run. `auto`: CUDA and bfloat16 where there is a GPU, CPU and float32 else.

    `linear`: what multiplies float32 on a CPU, `onednn` or `torch` (MKL, on x86); `auto`: oneDNN on x86.
    `compile`: torch.compile of passes over packed rows. Both give other bits.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: Literal["auto"] | Count = "auto"
    linear: Literal["auto", "onednn", "torch"] = "auto"
    compile: bool = False


class Model(Section):
    """A model: a folder, a hub id (with `revision`), a GGUF file, or `package:NAME/FILE.gguf` for one in an installed
    package. `sha256`: of a single GGUF file. `trust_remote_code`: run the Python code that the model's folder brings.
    `chat_template`: a Jinja file that takes the place of the tokenizer's own template.
    """

    source: str
    sha256: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    chat_template: str | None = None


class Prepare(Section):
    """The initial model, the prompts, and the reference policy of the KL (null: the initial policy)."""

    model: Model
    prompts: Prompts
    reference: Model | None = None


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
