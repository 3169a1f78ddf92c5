"""LoRA adapters over a frozen model: making, attaching, reading and writing them. Weights are safetensors.

An adapter is built into linear layers. Embeddings are none, nor is an output head that shares their weights: merged
into them, what was learnt for the one would change the other.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import Conv1D

from stages.common.linear import use_onednn, uses_onednn
from stages.common.model_folder import PolicyError
from stages.common.params import Lora
from stages.common.paths import REFERENCE

LINEAR = (torch.nn.Linear, Conv1D)
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

# peft 0.21 asks transformers for an attribute under its old name
warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)


def attach(base: Any, folder: Path) -> Any:
    return with_layers_of(base, PeftModel.from_pretrained(base, folder, is_trainable=True).eval())


def with_layers_of(base: Any, model: Any) -> Any:
    """The model with its own linear layers computed as those of the base are, which it was built into."""
    if uses_onednn(base):
        use_onednn(model)
    return model


def load_adapter(model: Any, folder: Path) -> None:
    result = set_peft_model_state_dict(model, load_file(folder / ADAPTER_WEIGHTS))
    if result.unexpected_keys:
        raise PolicyError(f"{folder}: adapter weights {result.unexpected_keys[:3]} do not fit the base model")


def new_adapter(base: Any, lora: Lora, seed: int, task: str | None = "CAUSAL_LM", source: Path = REFERENCE) -> Any:
    """A fresh LoRA adapter (B = 0: it changes nothing), A drawn from the seed, on a model that lies in `source`; `task`
    is peft's name for what it is for.
    """
    torch.manual_seed(seed)
    depth = base.config.get_text_config().num_hidden_layers
    if lora.last_layers is not None and lora.last_layers > depth:
        raise PolicyError(
            f"params.yaml: policy.lora.last_layers = {lora.last_layers}: the model has {depth} layers; set it to null "
            f"(all of them), or to {depth} or less"
        )
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=lora.targets,
        layers_to_transform=None if lora.last_layers is None else list(range(depth - lora.last_layers, depth)),
        task_type=task,
        base_model_name_or_path=str(source),
    )
    try:
        model = with_layers_of(base, get_peft_model(base, config).eval())
    except ValueError as error:
        raise PolicyError(wrong_targets(base, lora, error)) from None
    check_targets(model, lora)
    return model


def wrong_targets(base: Any, lora: Lora, error: ValueError) -> str:
    """Which of the targets the model does not have, and which layers it has."""
    layers = {name.rpartition(".")[2] for name, module in base.named_modules() if isinstance(module, LINEAR)}
    absent = [target for target in lora.targets if target not in layers]
    if not absent:
        return f"params.yaml: policy.lora.targets = {lora.targets}: {error}"
    return (
        f"params.yaml: policy.lora.targets = {lora.targets}: this model has no layer {', '.join(absent)}; its linear "
        f"layers are {', '.join(sorted(layers))}; name some of them, or set policy.method to full"
    )


def check_targets(model: Any, lora: Lora) -> None:
    """Refuse adapters in the embeddings, or in the output head that shares their weights."""
    embeddings = base_layer(model.get_input_embeddings())
    for name, module in model.named_modules():
        layer = base_layer(module)
        if isinstance(module, LoraLayer) and (layer is embeddings or layer.weight is embeddings.weight):
            what = "is the embeddings" if layer is embeddings else "shares its weights with the embeddings"
            raise PolicyError(
                f"params.yaml: policy.lora.targets = {lora.targets}: {name.rpartition('.')[2]} {what}; an adapter is "
                "for other linear layers: remove it, or set policy.method to full"
            )


def base_layer(module: Any) -> Any:
    """The module below an adapter, or the module itself."""
    return module.get_base_layer() if isinstance(module, LoraLayer) else module


def adapter_state(model: Any) -> dict[str, torch.Tensor]:
    """The adapter's own weights. peft would add those of an adapted output head's base, unchanged."""
    found: dict[str, torch.Tensor] = get_peft_model_state_dict(model, save_embedding_layers=False)
    return found


def save_adapter_weights(model: Any, folder: Path) -> None:
    state = {name: tensor.contiguous().cpu() for name, tensor in sorted(adapter_state(model).items())}
    save_file(state, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})


def save_new_adapter(model: Any, folder: Path, base: Path = REFERENCE) -> None:
    """Write a fresh adapter over `base` with a config whose bytes do not depend on Python's set order."""
    folder.mkdir(parents=True)
    config = {
        key: sorted(value) if isinstance(value, (set, list)) else value
        for key, value in model.peft_config["default"].to_dict().items()
    }
    config |= {"base_model_name_or_path": str(base), "inference_mode": True}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
    save_adapter_weights(model, folder)
