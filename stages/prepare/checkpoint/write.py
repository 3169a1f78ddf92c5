"""A loaded model as an ordinary folder in safetensors, and what there is to say of it."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

from stages.common.model_folder import REMOTE_CODE, eos_of_folder
from stages.common.params import Model
from stages.common.tokenizer_probe import fingerprint, vocabulary_hash
from stages.common.write_json import write_json
from stages.prepare.checkpoint import template
from stages.prepare.checkpoint.load import SPECIAL_IDS, Loaded
from stages.prepare.checkpoint.tokens import rows_of
from stages.prepare.machine import versions

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "peft", "gguf", "huggingface_hub", "jinja2")
NAMED = ("bos", "eos", "pad", "unk")


def write_folder(loaded: Loaded, folder: Path, option: str) -> None:
    """Model, tokenizer and, if it is needed and allowed, the code that comes with them."""
    config = loaded.model.config
    if loaded.code and getattr(config, "auto_map", None):  # of a hub's model it names the repository, too
        config.auto_map = {name: place.rpartition("--")[2] for name, place in config.auto_map.items()}
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    if loaded.code:
        files = sorted(loaded.place.glob("*.py"))
        for file in files:
            shutil.copyfile(file, folder / file.name)
        hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
        write_json({"allowed_by": f"{option}.trust_remote_code", "files": hashes}, folder / REMOTE_CODE)


def described(loaded: Loaded, settings: Model, folder: Path) -> dict[str, Any]:
    """Contents of model.json; `folder` is what has been written."""
    model, tokenizer = loaded.model, loaded.tokenizer
    config = model.config.get_text_config()
    return {
        "source": settings.source,
        "revision": loaded.revision,
        "architecture": type(model).__name__,
        "remote_code": loaded.code,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "dtype": str(model.dtype).removeprefix("torch."),
        "layers": getattr(config, "num_hidden_layers", None),
        "positions": getattr(config, "max_position_embeddings", None),
        "tied_embeddings": tied(model),
        "vocabulary": {"model": rows_of(model), "tokenizer": len(tokenizer.get_vocab())},
        "special_tokens": {name: special(tokenizer, name) for name in NAMED},
        "eos_ids": sorted({*eos_of_folder(folder), *_known(tokenizer.eos_token_id)}),
        "tokenizer": {
            "class": type(tokenizer).__name__,
            "fast": bool(tokenizer.is_fast),
            "fingerprint": fingerprint(tokenizer),
            "vocabulary": vocabulary_hash(tokenizer),
        },
        "chat_template": template.described(tokenizer),
        "unused_weights": loaded.unused,
        "generation_config": {"ignored": loaded.ignored, "kept": kept(model)},
        "versions": versions(LIBRARIES),
    }


def tied(model: Any) -> bool:
    """Whether input and output share their weights."""
    outputs = model.get_output_embeddings()
    return outputs is not None and outputs.weight is model.get_input_embeddings().weight


def special(tokenizer: Any, name: str) -> dict[str, Any] | None:
    token = getattr(tokenizer, f"{name}_token")
    return None if token is None else {"token": str(token), "id": getattr(tokenizer, f"{name}_token_id")}


def kept(model: Any) -> dict[str, Any]:
    """The ids that are left of generation_config."""
    config = getattr(model, "generation_config", None)
    return {} if config is None else {name: getattr(config, name) for name in SPECIAL_IDS}


def _known(token: int | None) -> list[int]:
    return [] if token is None else [int(token)]
