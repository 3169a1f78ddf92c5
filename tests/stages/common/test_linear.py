"""Linear layers by oneDNN: the numbers of torch's own, in both passes, for any model; and when they are used."""

import copy

import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from stages.common import linear
from stages.common.adapter import new_adapter
from stages.common.device import set_up
from stages.common.linear import OneDnnLinear, use_onednn, uses_onednn
from stages.common.params import Compute, Lora, ParamsError
from tests.tiny import gpt2, llama

pytestmark = pytest.mark.skipif(not linear.is_available(), reason="this torch has no oneDNN for x86")

LAYERS = [
    *(lambda: nn.Linear(5, 7), lambda: nn.Linear(5, 7, bias=False)),
    *(lambda: nn.Linear(5, 1), lambda: Conv1D(7, 5)),
]


def passes(layer, inputs):
    """Output, and gradients of a weighted sum of it, of the inputs and of all parameters."""
    output = layer(inputs)
    weights = torch.linspace(-1, 2, output.numel()).view_as(output)
    wanted = [one for one in (inputs, *layer.parameters()) if one.requires_grad]
    return output, torch.autograd.grad((weights * output).sum(), wanted)


@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 5), (2, 3, 5), (2, 0, 5)])
def test_both_passes_give_the_numbers_of_torch(make, shape):
    torch.manual_seed(0)
    plain, inputs = make(), torch.randn(shape, requires_grad=True)
    fast = copy.deepcopy(plain)
    use_onednn(fast)
    assert type(fast) is not type(plain)
    torch.testing.assert_close(passes(fast, inputs), passes(plain, inputs), rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(fast(inputs), plain(inputs), rtol=1e-5, atol=1e-6)


def test_inputs_may_lie_in_memory_in_any_way():
    torch.manual_seed(0)
    layer, wide = OneDnnLinear(5, 7), torch.randn(5, 2, 3, requires_grad=True)
    for inputs in (
        wide.permute(1, 2, 0),
        wide.permute(2, 1, 0)[:, :1],
        wide[:, :1, :1].expand(5, 2, 3).permute(1, 2, 0),
    ):
        wanted = nn.functional.linear(inputs, layer.weight, layer.bias)
        torch.testing.assert_close(layer(inputs), wanted, rtol=1e-5, atol=1e-6)
        found, expected = (torch.autograd.grad(one.square().sum(), wide)[0] for one in (layer(inputs), wanted))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_frozen_weight_gets_no_gradient_and_passes_one_on(monkeypatch):
    layer, inputs = OneDnnLinear(5, 7).requires_grad_(False), torch.randn(3, 5, requires_grad=True)
    output = layer(inputs)
    made = []
    product = linear.product
    monkeypatch.setattr(linear, "product", lambda *given: made.append(given) or product(*given))
    output.sum().backward()
    assert layer.weight.grad is None
    assert len(made) == 1  # that of the inputs' gradient
    torch.testing.assert_close(inputs.grad, layer.weight.sum(dim=0).expand(3, 5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_are_left_to_torch(dtype):
    layer, inputs = OneDnnLinear(5, 7).to(dtype), torch.randn(3, 5, dtype=dtype)
    assert torch.equal(layer(inputs), nn.functional.linear(inputs, layer.weight, layer.bias))


@pytest.mark.parametrize("make", [llama, gpt2])
def test_a_model_keeps_its_names_and_weights_and_gives_the_same_gradients(make):
    plain = make()
    fast = copy.deepcopy(plain)
    use_onednn(fast)
    assert uses_onednn(fast)
    assert not uses_onednn(plain)
    assert list(fast.state_dict()) == list(plain.state_dict())
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    for model in (plain, fast):
        model.requires_grad_(True)
        model(input_ids=ids, labels=ids).loss.backward()
    for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-7)


def test_every_product_of_a_model_is_onednn_s(monkeypatch):
    """None is left to torch unnoticed."""
    model = llama(layers=2)
    use_onednn(model)
    monkeypatch.setattr(nn.functional, "linear", None)
    model.requires_grad_(True)
    ids = torch.tensor([[5, 6, 7]])
    model(input_ids=ids, labels=ids).loss.backward()


def test_so_is_every_product_of_an_adapter_over_it(monkeypatch):
    base = llama(layers=2)
    use_onednn(base)
    model = new_adapter(base, Lora(rank=2, alpha=4, targets=["q_proj"]), 0)
    monkeypatch.setattr(nn.functional, "linear", None)
    model(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "lora_" in name)


def test_it_is_used_for_float32_on_a_cpu_unless_torch_is_asked_for():
    assert set_up(Compute(device="cpu", threads=1)).onednn
    assert set_up(Compute(device="cpu", threads=1, linear="onednn")).onednn
    assert not set_up(Compute(device="cpu", threads=1, linear="torch")).onednn
    assert not set_up(Compute(device="cpu", threads=1, dtype="bfloat16")).onednn


def test_asked_for_where_it_cannot_be_it_is_refused(monkeypatch):
    with pytest.raises(ParamsError, match=r"compute\.linear: onednn is for float32 on a CPU, not for bfloat16 on cpu"):
        set_up(Compute(device="cpu", dtype="bfloat16", threads=1, linear="onednn"))
    monkeypatch.setattr(linear, "is_available", lambda: False)
    assert not set_up(Compute(device="cpu", threads=1)).onednn
    with pytest.raises(ParamsError, match=r"compute\.linear: this torch has no oneDNN for x86; set it to auto"):
        set_up(Compute(device="cpu", threads=1, linear="onednn"))
