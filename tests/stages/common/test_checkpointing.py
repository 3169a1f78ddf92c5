"""Gradient checkpointing: the same gradients, and the model as it was afterwards."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import OPTConfig, OPTForCausalLM

from stages.common import linear
from stages.common.block_mask import use_block_attention
from stages.common.checkpointing import gradient_checkpointing
from stages.common.errors import StageError
from stages.common.logprobs import row_logprobs
from stages.common.packing import Group, pack
from stages.common.policy import trainable
from tests.tiny import gpt2, llama, qwen2

ROW = pack([Group([11, 12, 13], [[21, 22, 0], [23, 24]], [0, 1])], 100)[0]


def parted():
    """As models are loaded on a CPU: attention in parts, and linear layers by oneDNN where there is one."""
    model = llama()
    use_block_attention(model, torch.device("cpu"))
    if linear.is_available():
        linear.use_onednn(model)
    return model


def adapted():
    model = get_peft_model(llama(), LoraConfig(r=2, target_modules=["q_proj"], layers_to_transform=[1])).eval()
    with torch.no_grad():
        for parameter in trainable(model).values():
            parameter.fill_(0.05)
    return model


def gradients(model, wanted):
    if not isinstance(model, PeftModel):
        model.requires_grad_(True)
    kept = []
    keep = torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda t: t)
    with gradient_checkpointing(model, wanted, "update.gradient_checkpointing"):
        with keep:
            logp = row_logprobs(model, ROW, 0.9)
        logp.sum().backward()
    return [p.grad for p in model.parameters() if p.grad is not None], sum(kept)


@pytest.mark.parametrize("make", [llama, gpt2, qwen2, adapted, parted])  # gpt2 would drop out a tenth in training mode
def test_gradients_are_the_same_and_fewer_activations_are_kept(make):
    plain, kept = gradients(make(), False)
    model = make()
    checkpointed, fewer = gradients(model, True)
    assert fewer < kept
    for one, other in zip(checkpointed, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    assert not any(module.training for module in model.modules())
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


def test_layers_that_drop_out_by_themselves_are_refused():
    sizes = {"hidden_size": 16, "ffn_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
    model = OPTForCausalLM(OPTConfig(**sizes, word_embed_proj_dim=16, dropout=0.1)).eval()
    with (
        pytest.raises(StageError, match=r"update\.gradient_checkpointing: OPT\w+ of this model would drop out"),
        gradient_checkpointing(model, True, "update.gradient_checkpointing"),
    ):
        pass
    assert not any(module.training for module in model.modules())
