"""Model folders of a run: loading model, config and tokenizer, and which tokens end a sequence by the model's config.

A folder whose `remote_code.json` says so brings Python code of its own, which `prepare.model.trust_remote_code` has
allowed; of no other folder any code is run.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from stages.common.body import ready
from stages.common.checked import check_folder, checked, reading, small
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.paths import REFERENCE

REMOTE_CODE = "remote_code.json"

_tokenizers: dict[Path, tuple[str, Any]] = {}  # by folder, with the hash of its files

transformers_logging.disable_progress_bar()


class PolicyError(StageError):
    """A model folder that cannot be used; the message names it."""


def how_to_load(folder: Path) -> dict[str, bool]:
    """What every `from_pretrained` of a folder of the run is called with."""
    return {"local_files_only": True, "trust_remote_code": (folder / REMOTE_CODE).exists()}


def copy_code(source: Path, target: Path) -> None:
    """The Python code that a model folder brings, for a model that is made of it; nothing where it brings none."""
    if (source / REMOTE_CODE).exists():
        for path in (*sorted(source.glob("*.py")), source / REMOTE_CODE):
            shutil.copyfile(path, target / path.name)


def load_tokenizer(folder: Path = REFERENCE) -> Any:
    """The tokenizer of a folder. Who asks again gets the same one, as long as the files are the same: it is not to be
    changed.
    """
    found, place = check_folder(folder, small), folder.absolute()
    if place not in _tokenizers or _tokenizers[place][0] != found:
        _tokenizers[place] = found, AutoTokenizer.from_pretrained(folder, **how_to_load(folder))
    return _tokenizers[place][1]


def load_config(folder: Path = REFERENCE) -> Any:
    check_folder(folder, small)
    return AutoConfig.from_pretrained(folder, **how_to_load(folder))


def load_model(folder: Path, runtime: Runtime) -> Any:
    """A causal language model from a folder, in evaluation mode (no dropout) and without gradients."""
    if not (folder / "config.json").exists():
        raise PolicyError(f"{folder}: not a model folder (no config.json)")
    options = {"dtype": runtime.dtype, **how_to_load(folder)}
    with reading(folder):
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", **options)
        except ValueError:  # an architecture without this kernel: its own attention
            model = AutoModelForCausalLM.from_pretrained(folder, **options)
        owned(model)
    return ready(model, runtime)


def owned(model: Any) -> Any:
    """The model with its weights in this process's own memory. As they are loaded they are mapped from the file, and a
    byte that flips there would flip in a model that a worker has held for long.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    return model


def eos_of(config: dict[str, Any]) -> list[int]:
    """The end-of-sequence ids that a config.json names, of the text part of a composite one too; in ascending order."""
    text = config.get("text_config")
    named = [part.get("eos_token_id") for part in (config, text) if isinstance(part, dict)]
    ids = [one for part in named for one in (part if isinstance(part, list) else [part]) if one is not None]
    return sorted({int(one) for one in ids})


def eos_of_folder(folder: Path) -> list[int]:
    path = folder / "config.json"
    if not path.exists():
        raise PolicyError(f"{folder}: not a model folder (no config.json)")
    return eos_of(json.loads(checked(path).read_text(encoding="utf-8")))
