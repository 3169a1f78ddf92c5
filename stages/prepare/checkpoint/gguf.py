"""Model and tokenizer of a GGUF file. Dequantizing on load gives the same weights and lets them be saved."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from stages.common.params import Model, ParamsError

MAGIC = b"GGUF"


def check_file(path: Path, settings: Model, option: str) -> None:
    """The hash, if one is given, and that it is GGUF at all."""
    if settings.sha256 is not None:
        check_hash(path, settings.sha256, option)
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ParamsError(
                f"params.yaml: {option}.source = {settings.source!r}: a single file has to be GGUF, and {path.name} "
                "is not; for safetensors give the folder with config.json and tokenizer"
            )


def check_hash(path: Path, expected: str, option: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ParamsError(
            f"params.yaml: {option}.sha256: {path.name} has {found}, expected {expected}; it is another file"
        )


def load_gguf(path: Path) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    pre = GGUFReader(path).get_field("tokenizer.ggml.pre")
    if pre is not None and pre.contents() == "smollm":
        # the converted tokenizer lacks the rule that splits digits
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=True),
            ]
        )
    return model, tokenizer
