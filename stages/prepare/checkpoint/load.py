"""A model and its tokenizer from any source, checked: what cannot be trained is refused here, in plain words.

The checkpoint's generation_config decides nothing. It is replaced by one that keeps the ids of special tokens only,
so that one which transformers itself would refuse to save does no harm either.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from stages.common.model_folder import eos_of
from stages.common.params import Model, ParamsError
from stages.prepare.checkpoint.folder import brings_code, check_folder
from stages.prepare.checkpoint.gguf import check_file, load_gguf
from stages.prepare.checkpoint.hub import download
from stages.prepare.checkpoint.template import use_template
from stages.prepare.checkpoint.tokens import check_causal, check_tokenizer, check_vocabulary
from stages.prepare.checkpoint.weights import stored_dtype, weight_files
from stages.prepare.locate import locate

SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
NO_SETTING = {*SPECIAL_IDS, "_from_model_config", "transformers_version"}


@dataclass(frozen=True)
class Loaded:
    """`place`: the folder or file; `code`: classes of the folder's own Python code, if that was allowed; `unused`:
    weights that the architecture has no place for; `ignored`: what generation_config.json asked for.
    """

    model: Any
    tokenizer: Any
    place: Path
    revision: str | None
    code: list[str]
    unused: list[str]
    ignored: dict[str, Any]


def load(settings: Model, option: str) -> Loaded:
    """`option`: prepare.model or prepare.reference, for messages."""
    found = locate(settings, option)
    if isinstance(found, Path) and found.is_file():
        return finished(_from_gguf(found, settings, option), settings, option)
    if settings.sha256 is not None:
        raise ParamsError(
            f"params.yaml: {option}.sha256 is for a single GGUF file; set it to null for {settings.source!r}"
        )
    folder = found if isinstance(found, Path) else download(found, settings, option)
    revision = None if isinstance(found, Path) else folder.name
    return finished(_from_folder(folder, revision, settings, option), settings, option)


def _from_gguf(path: Path, settings: Model, option: str) -> Loaded:
    check_file(path, settings, option)
    try:
        model, tokenizer = load_gguf(path)
    except Exception as error:  # of a parser of other people's files
        raise _unloadable(path, settings, option, error) from None
    return Loaded(model, tokenizer, path, None, [], [], {})


def _from_folder(folder: Path, revision: str | None, settings: Model, option: str) -> Loaded:
    config = check_folder(folder, settings, option)
    files = weight_files(folder)
    dtype = stored_dtype(files) or "auto"
    how = {"trust_remote_code": settings.trust_remote_code, "local_files_only": True}
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=files[0].suffix == ".safetensors", output_loading_info=True, **how
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, **how)
    except Exception as error:  # of code and files that are other people's
        raise _unloadable(folder, settings, option, error) from None
    if info["missing_keys"]:
        names = sorted(info["missing_keys"])
        raise ParamsError(
            f"{folder}: no weights for {', '.join(names[:3])} ({len(names)} in all): they would be random numbers"
        )
    if eos_of(config) == []:  # a class's default would otherwise be written as if the checkpoint said so
        model.config.get_text_config().eos_token_id = tokenizer.eos_token_id
    code = brings_code(folder) if settings.trust_remote_code else []
    return Loaded(model, tokenizer, folder, revision, code, sorted(info["unexpected_keys"]), ignored_of(folder))


def _unloadable(place: Path, settings: Model, option: str, error: Exception) -> ParamsError:
    reason = str(error).strip().partition("\n")[0]
    what = f"params.yaml: {option}.source = {settings.source!r}"
    return ParamsError(f"{what}: {place} cannot be loaded: {type(error).__name__}: {reason}")


def ignored_of(folder: Path) -> dict[str, Any]:
    """What generation_config.json asked for, apart from the ids of special tokens."""
    path = folder / "generation_config.json"
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: found[name] for name in sorted(found) if name not in NO_SETTING and found[name] is not None}
    except (ValueError, TypeError):
        return {"generation_config.json": "not readable"}


def finished(loaded: Loaded, settings: Model, option: str) -> Loaded:
    """The checks that need the loaded model, the template, and the neutral generation_config."""
    model, tokenizer = loaded.model.eval(), loaded.tokenizer
    check_tokenizer(tokenizer, loaded.place)
    check_vocabulary(model, tokenizer, loaded.place)
    with torch.random.fork_rng(devices=[]):
        check_causal(model, loaded.place)
    use_template(tokenizer, settings, option)
    before = getattr(model, "generation_config", None)
    if before is not None:
        model.generation_config = GenerationConfig(**{name: getattr(before, name) for name in SPECIAL_IDS})
    return loaded
