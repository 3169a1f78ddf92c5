"""`compute.compile`: passes that torch compiles, and a machine that cannot."""

import shutil

import pytest
import torch
from torch._inductor import config

from stages.common import body, linear
from stages.common.body import compile_passes, is_compiled
from stages.common.device import check_compiler
from stages.common.logprobs import has_plain_head, row_logprobs
from stages.common.packing import Group, pack
from stages.common.params import ParamsError
from tests.tiny import llama

ROWS = [pack([Group([11] * n, [[21, 22], [23] * n], [0, 1])], 100)[0] for n in (3, 5)]


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile wants a C++ compiler")
def test_compiled_passes_give_the_same_log_probs_and_gradients_for_rows_of_any_length(monkeypatch):
    plain, compiled = llama(layers=1), llama(layers=1)
    compiled.load_state_dict(plain.state_dict())
    for model in (plain, compiled):
        model.requires_grad_(True)
        if linear.is_available():  # as `compute.linear: auto` does
            linear.use_onednn(model)
    compile_passes(compiled)
    assert is_compiled(compiled)
    assert not is_compiled(plain)
    passes = []
    real = body._read_compiled()
    monkeypatch.setattr(body, "_read_compiled", lambda: lambda *given: passes.append(1) or real(*given))
    assert has_plain_head(compiled), "or the passes are those of the whole model, which is not compiled"
    for row in ROWS:
        found, wanted = row_logprobs(compiled, row, 0.9), row_logprobs(plain, row, 0.9)
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
        ours = torch.autograd.grad(found.sum(), compiled.parameters())
        for one, other in zip(ours, torch.autograd.grad(wanted.sum(), plain.parameters()), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert len(passes) == len(ROWS)
    logp = row_logprobs(compiled, ROWS[0], 0.9)  # as diagnose does: several gradients of one pass
    for _ in range(2):
        torch.autograd.grad(logp.sum(), compiled.parameters(), retain_graph=True)


def test_without_a_compiler_the_option_is_refused_by_its_name():
    without = {"cpp.cxx": (None, "no-such-compiler"), "force_disable_caches": True}
    with (
        config.patch(without),
        pytest.raises(ParamsError, match=r"^params\.yaml: compute\.compile: torch.compile does not work here: "),
    ):
        check_compiler(torch.device("cpu"))
