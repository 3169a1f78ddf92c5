"""`compute.compile`: passes that torch compiles, and a machine that cannot."""

import shutil

import pytest
import torch
from torch._inductor import config

from stages.common import linear
from stages.common.body import compile_passes, is_compiled
from stages.common.device import check_compiler
from stages.common.logprobs import row_logprobs
from stages.common.packing import Group, pack
from stages.common.params import ParamsError
from tests.tiny import llama

ROWS = [pack([Group([11] * n, [[21, 22], [23] * n], [0, 1])], 100)[0] for n in (3, 5)]


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile wants a C++ compiler")
@torch.no_grad()
def test_compiled_passes_give_the_same_log_probs_for_rows_of_any_length():
    model = llama(layers=1)
    if linear.is_available():  # as `compute.linear: auto` does
        linear.use_onednn(model)
    plain = [row_logprobs(model, row, 0.9) for row in ROWS]
    assert not is_compiled(model)
    compile_passes(model)
    assert is_compiled(model)
    for row, wanted in zip(ROWS, plain, strict=True):
        torch.testing.assert_close(row_logprobs(model, row, 0.9), wanted, rtol=0, atol=1e-4)


def test_without_a_compiler_the_option_is_refused_by_its_name():
    without = {"cpp.cxx": (None, "no-such-compiler"), "force_disable_caches": True}
    with (
        config.patch(without),
        pytest.raises(ParamsError, match=r"^params\.yaml: compute\.compile: torch.compile does not work here: "),
    ):
        check_compiler(torch.device("cpu"))
