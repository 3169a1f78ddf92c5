"""Options of where and how models compute."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.common.params import Params


def onednn_has_float32_on_a_cpu(params: "Params") -> None:
    compute = params.compute
    if compute.linear == "onednn" and (compute.dtype == "bfloat16" or compute.device.startswith("cuda")):
        raise ValueError("compute.linear: onednn is for float32 on a CPU; set it to auto")


def compiled_layers_keep_their_activations(params: "Params") -> None:
    checkpointed = [("update", params.update), ("critic", params.critic)]
    for name, section in checkpointed:
        if params.compute.compile and section is not None and section.gradient_checkpointing:
            raise ValueError(
                f"compute.compile: torch does not compile the checkpoints of every architecture; set it to false, or "
                f"{name}.gradient_checkpointing"
            )


RULES = (onednn_has_float32_on_a_cpu, compiled_layers_keep_their_activations)
