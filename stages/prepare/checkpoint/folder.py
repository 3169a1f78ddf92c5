"""What a model folder has to be before anything is loaded from it: a causal language model, whole, with a tokenizer."""

import json
from pathlib import Path
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

from stages.common.params import Model, ParamsError

CONFIG = "config.json"
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt"),
    *("spiece.model", "sentencepiece.bpe.model", "tekken.json"),
)


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json; messages say what such a folder may be instead."""
    path = folder / CONFIG
    if not path.exists():
        raise ParamsError(f"{folder}: not a model folder in the format of transformers: no {CONFIG}{_instead(folder)}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ParamsError(f"{path}: not JSON: {error}; copy it again") from None
    if not isinstance(found, dict) or "model_type" not in found:
        raise ParamsError(f"{path}: no `model_type` in it, so that nobody knows what to load")
    return found


def _instead(folder: Path) -> str:
    if (folder / "adapter_config.json").exists():
        return ", but a PEFT adapter; merge it into its base first (`merge_and_unload`), and give that folder"
    inside = sorted(folder.glob("*.gguf"))
    return f"; for the GGUF file name {inside[0]} itself" if inside else ""


def check_folder(folder: Path, settings: Model, option: str) -> dict[str, Any]:
    """The config of a folder that can be loaded, checked for what transformers would not notice, or say badly."""
    config = read_config(folder)
    check_code(config, folder, settings, option)
    check_kind(config, folder)
    quantised = config.get("quantization_config")
    if quantised is not None:
        method = quantised.get("quant_method", "unknown") if isinstance(quantised, dict) else "unknown"
        raise ParamsError(f"{folder}: its weights are quantised ({method}) and cannot be trained; take the full ones")
    if not any((folder / name).exists() for name in TOKENIZER_FILES) and not any(folder.glob("*.tiktoken")):
        raise ParamsError(f"{folder}: no tokenizer (such as tokenizer.json, tokenizer_config.json); copy its files too")
    return config


def brings_code(folder: Path) -> list[str]:
    """The classes that the folder's own Python code is to provide, by its config and its tokenizer's."""
    found: list[str] = []
    for name in (CONFIG, "tokenizer_config.json"):
        path = folder / name
        if path.exists():
            try:
                found += sorted(json.loads(path.read_text(encoding="utf-8")).get("auto_map", {}))
            except (ValueError, AttributeError):
                continue  # a broken file is told where it is loaded
    return found


def check_code(config: dict[str, Any], folder: Path, settings: Model, option: str) -> None:
    """An architecture that transformers does not know is refused, or needs the explicit option."""
    if config["model_type"] in CONFIG_MAPPING_NAMES or settings.trust_remote_code:
        return
    where = f"{folder}: architecture {config['model_type']!r}"
    if "auto_map" not in config:
        raise ParamsError(f"{where}: this version of transformers does not know it")
    raise ParamsError(
        f"{where} is Python code that the folder brings. It would run here with all your rights: read it, and set "
        f"{option}.trust_remote_code in params.yaml to true if you want that"
    )


def check_kind(config: dict[str, Any], folder: Path) -> None:
    """Decoder-only and made for causal language modelling, as far as the config says."""
    kind, named = config["model_type"], config.get("architectures") or []
    problem = f"{folder}: {', '.join(named) or kind} is no decoder-only causal language model"
    if config.get("is_encoder_decoder"):
        raise ParamsError(f"{problem}, but an encoder and a decoder; take one such as Llama, Qwen or GPT-2")
    if kind not in CONFIG_MAPPING_NAMES:
        return  # the folder's own code; what it does is tried after loading
    allowed = {name for names in (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES) for name in _of(names, kind)}
    if not _of(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, kind) or not (set(named) <= allowed or "auto_map" in config):
        raise ParamsError(f"{problem} of transformers; a reward model, a classifier or an encoder cannot be a policy")


def _of(names: Any, kind: str) -> tuple[str, ...]:
    found = dict(names).get(kind, ())
    return (found,) if isinstance(found, str) else tuple(found)
