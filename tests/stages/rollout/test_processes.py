"""Sampling side by side: the bits of one thread, the weights of now, and no process that is left behind."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from stages.common.errors import StageError, TransientError
from stages.common.journal import Journal
from stages.common.kept.keeping import keeping
from stages.common.params import ParamsError
from stages.common.processes import lives
from stages.common.seeds import seed_of
from stages.rollout import processes
from stages.rollout.chunks import chunks
from stages.rollout.sampler import check_processes, sample
from stages.rollout.samples import Request, SamplerSettings
from stages.rollout.shared import Arena, places_of
from stages.rollout.skeleton import taken_apart
from tests.tiny import gpt2, llama, sliding

ROOT = Path(__file__).parents[3]
ALONE = SamplerSettings(8, 1.0, frozenset(range(0, 300, 20)), 200)
TWO = replace(ALONE, processes=2)


def requests():
    return [Request([11 + i] * (3 + i % 5), [seed_of("test", i, s) for s in range(8)]) for i in range(16)]


def adapted():
    torch.manual_seed(0)
    options = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(llama(), options)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    processes._pool.close()


def frozen():
    return llama().requires_grad_(False)


@pytest.mark.parametrize("made", [llama, frozen, gpt2, sliding, adapted])
def test_several_processes_give_the_bits_of_this_one(made):
    assert len(chunks(requests(), ALONE, spread=True)) > 2
    model, heard = made(), []
    alone = sample(model, requests(), ALONE)
    assert sample(model, requests(), TWO, heard.append) == alone
    assert sum(heard) == 16 * 8


def test_the_journal_says_once_that_there_is_too_little_work_for_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, journal = llama(), Journal("rollout", "i0001")
    with keeping("rollout", "i0001", 1000, journal):
        for _ in range(2):
            sample(model, requests()[:1], TWO)
    assert journal.path.read_text().count("rollout.processes: 1 of 2 have work") == 1


def test_they_stay_warm_and_see_weights_that_were_written_replaced_or_switched_off():
    model = adapted()
    first = sample(model, requests(), TWO)
    pids = [child.process.pid for child in processes._pool.children]
    version = processes._pool.version
    weight = next(p for name, p in model.named_parameters() if "lora_B" in name)
    with torch.no_grad():
        weight.add_(1.0)  # in place, as an optimizer does
    second = sample(model, requests(), TWO)
    assert processes._pool.version == version  # nothing had to be sent
    weight.data = weight.detach() - 3.0  # another tensor
    third = sample(model, requests(), TWO)
    with model.disable_adapter():
        fourth = sample(model, requests(), TWO)
        assert fourth == sample(model, requests(), ALONE)
    assert third == sample(model, requests(), TWO) == sample(model, requests(), ALONE)
    other = llama()
    with torch.no_grad():
        next(other.parameters()).add_(0.1)
    fifth = sample(other, requests(), TWO)
    assert fifth == sample(other, requests(), ALONE)
    found = [first, second, third, fourth, fifth]
    assert all(found[i] != found[j] for i in range(5) for j in range(i))
    assert sample(model, requests(), TWO) == third  # the other model took nothing from this one
    assert [child.process.pid for child in processes._pool.children] == pids


def test_weights_lie_once_in_memory_and_tied_ones_stay_tied():
    model = llama()
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    _, tensors = taken_apart(model)
    arena = Arena(places_of(tensors))
    arena.take_in(tensors)
    assert all(torch.equal(p, expected[name]) for name, p in model.named_parameters())
    assert {t.data_ptr() for t in tensors} == {v.data_ptr() for v in arena.views}
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert places_of(tensors) == arena.places
    whole = torch.arange(12.0)
    views = [whole[:6].view(2, 3), whole[6:], torch.zeros(0, 2)]  # two of one storage
    arena = Arena(places_of(views))
    arena.take_in(views)
    assert [v.tolist() for v in views] == [[[0, 1, 2], [3, 4, 5]], [6, 7, 8, 9, 10, 11], []]
    assert views[0].untyped_storage().data_ptr() == views[1].untyped_storage().data_ptr()


def test_a_process_that_is_killed_ends_the_stage_with_its_name_and_is_replaced():
    model = llama()
    expected = sample(model, requests(), TWO)
    pid = processes._pool.children[0].process.pid
    told = []

    def kill(more):
        if not told:
            os.kill(pid, signal.SIGKILL)
        told.append(more)

    many = [Request(request.prompt_ids, request.seeds) for request in requests() * 2]
    with pytest.raises(
        TransientError, match=rf"pid {pid}\) was killed by SIGKILL.*rollout.batch_tokens or rollout.pro"
    ):
        sample(model, many, TWO, kill)
    assert sample(model, requests(), TWO) == expected
    processes._pool.children[1].process.kill()  # at rest
    processes._pool.children[1].process.wait()
    processes.forget_model()  # which no dead process keeps a finished stage from
    assert sample(model, requests(), TWO) == expected


def test_what_goes_wrong_in_a_process_is_raised_here():
    model = llama()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(StageError, match="log-probs are not finite"):
        sample(model, requests(), TWO)
    with pytest.raises(RuntimeError, match=r"IndexError|index out of range"):
        sample(llama(), [Request([10**6], [1]), Request([10**6], [2])], TWO)


def test_a_gpu_has_one_process():
    check_processes(TWO, on_cpu=True)
    check_processes(ALONE, on_cpu=False)
    with pytest.raises(ParamsError, match=r"rollout.processes is 2.*on a GPU"):
        check_processes(TWO, on_cpu=False)


STAGE = """
import os
import sys
from stages.common.processes import identity
from stages.rollout import processes
from stages.rollout.sampler import sample
from tests.stages.rollout.test_processes import TWO, requests
from tests.tiny import llama

def told(more):
    if not told.done:
        told.done = True
        print(*(identity(child.process.pid) for child in processes._pool.children), flush=True)

told.done, model = False, llama()
while os.getppid() == int(sys.argv[1]):
    sample(model, requests() * 50, TWO, told)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_stage_s(number):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    stage = subprocess.Popen(
        [sys.executable, "-c", STAGE, str(os.getpid())], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert stage.stdout is not None
    children = stage.stdout.readline().split()
    assert len(children) == 2
    assert all(map(lives, children))
    stage.send_signal(number)
    stage.wait()
    deadline = time.monotonic() + 10
    while any(map(lives, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
