"""Where an adapter can go: linear layers, an output head of its own, but no embeddings."""

import pytest
import torch

from stages.common import paths
from stages.common.adapter import new_adapter, save_new_adapter
from stages.common.device import Runtime
from stages.common.params import Lora
from stages.common.policy import Models, PolicyError, save_policy, trainable
from tests.models import save, small_llama
from tests.tiny import tiny_tokenizer

RUNTIME = Runtime(torch.device("cpu"), torch.float32)
IDS = torch.tensor([[11, 12, 13, 14]])


def lora(*targets):
    return Lora(rank=2, alpha=4, targets=list(targets))


@pytest.mark.parametrize(
    ("tied", "targets", "told"),
    [
        (True, ["q_proj", "lm_head"], "lm_head shares its weights with the embeddings"),
        (True, ["embed_tokens"], "embed_tokens is the embeddings"),
        (False, ["embed_tokens", "q_proj"], "embed_tokens is the embeddings"),
    ],
)
def test_embeddings_are_refused(tied, targets, told):
    with pytest.raises(PolicyError, match=rf"policy\.lora\.targets = .*{told}"):
        new_adapter(small_llama(tie_word_embeddings=tied), lora(*targets), 0)


def test_an_output_head_of_its_own_is_trained_saved_and_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(paths.REFERENCE, small_llama(tie_word_embeddings=False), tiny_tokenizer())
    model = new_adapter(Models(RUNTIME).base(), lora("lm_head"), 0)
    save_new_adapter(model, paths.policy("i0000"))
    with torch.no_grad():
        for parameter in trainable(model).values():
            parameter.add_(0.1)
    save_policy(model, paths.policy("i0000"), paths.policy("i0001"))
    assert sum(path.stat().st_size for path in paths.policy("i0001").iterdir()) < 20_000  # and not the head itself
    with torch.no_grad():
        again = Models(RUNTIME).policy(paths.policy("i0001"))(IDS).logits
        assert torch.equal(again, model(IDS).logits)
        assert not torch.equal(again, Models(RUNTIME).base()(IDS).logits)
