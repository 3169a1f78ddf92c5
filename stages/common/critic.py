"""Critics as folders: a value head (one linear output) over the last hidden state of a causal model, at each position.

`method: full`: an ordinary Hugging Face folder of sequence classification with one label. `lora`: an adapter and the
head over `data/reference`, or over the model in the folder's own `base`. The folder of a run without a critic holds
nothing but `critic.json`, which says so.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging

from stages.common.adapter import attach
from stages.common.body import ready
from stages.common.checked import check_folder, checked, reading
from stages.common.device import Runtime
from stages.common.errors import StageError
from stages.common.model_folder import how_to_load, owned
from stages.common.paths import REFERENCE
from stages.common.reward_model import head_of

MARKER = "critic.json"  # {"critic": null}, or of what it is a copy and which weights are trained
HEAD = "head.safetensors"  # beside an adapter
ADAPTER = "adapter_config.json"
OWN_BASE = "base"  # below an adapter that is not over the reference
OPTIMIZER = "optimizer.safetensors"
PRETRAINING = "pretraining.parquet"
NO_WEIGHTS = frozenset({OPTIMIZER, PRETRAINING})  # files that do not say what the values are


class CriticError(StageError):
    """A critic that cannot be used, or that is not there; the message names the folder and a way out."""


@dataclass(frozen=True)
class Critic:
    """The model that gives values, and the adapter inside it (None: all weights are trained)."""

    model: Any
    adapter: Any | None


def described(folder: Path) -> dict[str, str] | None:
    """What the folder says of its critic; None: the run has none."""
    path = folder / MARKER
    if not path.exists():
        raise CriticError(f"{path} does not exist; run the stage that makes it (`dvc repro` or `rloo train`)")
    found: dict[str, str] | None = json.loads(checked(path).read_text(encoding="utf-8"))["critic"]
    return found


def write_marker(folder: Path, critic: dict[str, str] | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text(json.dumps({"critic": critic}) + "\n", encoding="utf-8")


def base_of(folder: Path) -> Path:
    """The model below the folder's adapter."""
    own = folder / OWN_BASE
    return own if own.exists() else REFERENCE


def is_weights(path: Path) -> bool:
    """Whether a file of the folder says what the values are."""
    return path.name not in NO_WEIGHTS


def critic_hash(folder: Path) -> str:
    """Hash of all that decides the values: the folder's weights, and those of the reference below an adapter."""
    own = check_folder(folder, is_weights)
    return own + check_folder(REFERENCE) if (folder / ADAPTER).exists() and base_of(folder) == REFERENCE else own


def headed(folder: Path, runtime: Runtime) -> Any:
    """The model in a folder under its own head, or under a new one of zeros if it is a language model: until it has
    seen a return the critic expects nothing, where random weights would add noise to the first advantages.
    """
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # that the head is new and the language model's is gone is what is wanted
    try:
        with reading(folder, is_weights):
            model, info = AutoModelForSequenceClassification.from_pretrained(
                folder,
                num_labels=1,
                dtype=runtime.dtype,
                attn_implementation="sdpa",
                output_loading_info=True,
                **how_to_load(folder),
            )
            owned(model)
    except (OSError, ValueError) as error:
        raise CriticError(f"{folder}: no value head can be put on it: {error}") from None
    finally:
        logging.set_verbosity(verbosity)
    head = head_of(model)
    if not isinstance(head, torch.nn.Linear):
        raise CriticError(f"{folder}: {type(model).__name__} has no linear head `score` over its last hidden state")
    missing = {name for name in info["missing_keys"] if not name.startswith("score.")}
    if missing:
        raise CriticError(f"{folder}: has no weights for {sorted(missing)[:3]}")
    if info["missing_keys"]:
        for parameter in head.parameters():
            torch.nn.init.zeros_(parameter)
    return ready(model, runtime)


def load_critic(folder: Path, runtime: Runtime) -> Critic:
    """The critic in a folder, its trainable parameters requiring gradients."""
    if not (folder / ADAPTER).exists():
        return Critic(headed(folder, runtime).requires_grad_(True), None)
    model = headed(base_of(folder), runtime)
    head = head_of(model)
    assert head is not None, "headed() has checked it"
    with reading(folder, is_weights):
        adapter = attach(model, folder)
        head.load_state_dict(load_file(folder / HEAD))
    head.requires_grad_(True)
    return Critic(model, adapter)
