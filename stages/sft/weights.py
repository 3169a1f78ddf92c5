"""What becomes of trained weights: masters back into the model, an adapter into its base."""

from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import safe_open

from stages.common.checked import check_folder
from stages.common.device import Runtime
from stages.common.optimizer import StoredAdamW
from stages.common.paths import BASE
from stages.common.policy import PolicyError, load_model

PRECISIONS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def stored_dtype(folder: Path) -> torch.dtype:
    """Precision of the folder's floating-point weights; of several the widest."""
    found: set[torch.dtype] = set()
    check_folder(folder)
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as stored:
            kinds = {stored.get_slice(name).get_dtype() for name in stored.keys()}  # noqa: SIM118
        found |= {PRECISIONS[kind] for kind in kinds if kind in PRECISIONS}
    if not found:
        raise PolicyError(f"{folder}: no weights in safetensors, or none in floating point; it cannot be fine-tuned")
    return max(found, key=lambda dtype: (dtype.itemsize, str(dtype)))


def trained(model: Any, optimizer: StoredAdamW) -> Any:
    """The model with its float32 masters as weights: what is saved is not rounded to the precision of training."""
    finished = model.to(torch.promote_types(model.dtype, torch.float32))
    parameters = dict(finished.named_parameters())
    for name, master in optimizer.masters.items():
        parameters[name].data.copy_(master)
    return finished


def merged(model: PeftModel, optimizer: StoredAdamW) -> Any:
    """The base with the adapter added to its weights, in float32 or better, as a plain model.

    The base is read again: the copy that was trained over may have been rounded to the precision of training.
    """
    device, wide = next(model.parameters()).device, torch.promote_types(stored_dtype(BASE), torch.float32)
    exact = load_model(BASE, Runtime(device, wide)).state_dict()
    finished = trained(model, optimizer).to(wide)
    for name, tensor in finished.get_base_model().state_dict().items():
        if "lora_" not in name:
            tensor.copy_(exact[name.replace(".base_layer.", ".")])
    return finished.merge_and_unload()
