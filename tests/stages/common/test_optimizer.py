"""Stopping and going on gives the weights of never stopping; states written on the way; low-precision masters."""

import errno
import time
from hashlib import blake2b
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stages.common import fingerprint
from stages.common.disk import DiskError
from stages.common.files import publish
from stages.common.optimizer import OptimizerError, StoredAdamW
from stages.common.params import Update

SETTINGS = Update(learning_rate=0.1, max_grad_norm=1.0, weight_decay=0.01)


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return {name: torch.nn.Parameter(torch.randn(3, 2, generator=generator).to(dtype)) for name in ("a", "b")}


def train(optimizer, steps, first=0):
    for step in range(first, first + steps):
        for part in range(2):  # two micro-batches
            loss = sum((p.float() * (step + 1) - part).pow(2).sum() for p in optimizer.parameters.values())
            loss.backward()
            optimizer.collect_gradients()
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_going_on_from_the_stored_state_equals_never_stopping(tmp_path, dtype):
    straight = StoredAdamW(parameters(dtype), SETTINGS)
    train(straight, 5)
    stopped = StoredAdamW(parameters(dtype), SETTINGS)
    train(stopped, 2)
    stopped.save(tmp_path / "state.safetensors")
    weights = {name: torch.nn.Parameter(p.detach().clone()) for name, p in stopped.parameters.items()}
    resumed = StoredAdamW(weights, SETTINGS)
    resumed.load(tmp_path / "state.safetensors")
    train(resumed, 3, first=2)
    assert resumed.step_count == 5
    for name in weights:
        assert torch.equal(resumed.parameters[name], straight.parameters[name])


def test_moments_stay_in_the_file_until_a_step_wants_them(tmp_path):
    path, again = tmp_path / "state.safetensors", tmp_path / "again.safetensors"
    first = StoredAdamW(parameters(), SETTINGS)
    train(first, 2)
    first.save(path)
    second = StoredAdamW(parameters(), SETTINGS)
    second.load(path)
    assert second.step() == (0.0, None)
    assert not second.adamw.state
    second.save(again)  # no step was taken: the same state
    assert again.read_bytes() == path.read_bytes()
    third = StoredAdamW(parameters(), SETTINGS)
    third.load(path)
    tensors, counts = third.snapshot(moved=True)
    assert counts == {"a": 2.0, "b": 2.0}
    fourth = StoredAdamW(parameters(), SETTINGS)
    fourth.load(path)
    fourth.restore({name: tensor + 1 for name, tensor in tensors.items()}, counts, 2)
    train(fourth, 1)  # with the moments that were restored, and not those of the file
    third.restore({name: tensor + 1 for name, tensor in tensors.items()}, counts, 2)
    train(third, 1)
    for name in ("a", "b"):
        assert torch.equal(fourth.parameters[name], third.parameters[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("before", ["new", "in memory", "in a file"])
def test_a_step_that_writes_its_state_on_the_way_is_the_step_and_the_state(tmp_path, dtype, before):
    def made(number):
        optimizer = StoredAdamW(parameters(dtype) | {"idle": torch.nn.Parameter(torch.ones(2, dtype=dtype))}, SETTINGS)
        if before != "new":
            train(optimizer, 2)
        if before == "in a file":
            path = tmp_path / f"before{number}"
            optimizer.save(path)
            optimizer = StoredAdamW(optimizer.parameters, SETTINGS)
            optimizer.load(path)
        for name in ("a", "b"):  # and none for the third
            optimizer.parameters[name].float().pow(2).sum().backward()
        optimizer.collect_gradients()
        return optimizer

    plain, other = made(1), made(2)
    assert plain.step() == other.step(tmp_path / "other")
    plain.save(tmp_path / "plain")
    assert (tmp_path / "other").read_bytes() == (tmp_path / "plain").read_bytes()
    assert plain.step_count == other.step_count
    assert not other.adamw.state
    for name in plain.parameters:
        assert torch.equal(plain.parameters[name], other.parameters[name])
        assert other.masters[name].grad is None
    if before != "new":  # it would go on from there
        train(plain, 1, first=3)
        train(other, 1, first=3)
        assert all(torch.equal(plain.parameters[name], other.parameters[name]) for name in ("a", "b"))


@pytest.mark.parametrize("before", ["new", "in a file"])
def test_what_is_hashed_on_the_way_is_what_is_written(tmp_path, monkeypatch, before):
    """However long the hashing takes, the room that it reads from is not used again before."""

    class Slow:
        def __init__(self, **options):
            self.real = blake2b(**options)

        def update(self, content):
            time.sleep(0.01)
            self.real.update(content)

        def hexdigest(self):
            return self.real.hexdigest()

    def made():
        return StoredAdamW({str(n): torch.nn.Parameter(torch.randn(50 + n)) for n in range(8)}, SETTINGS)

    optimizer = made()
    if before == "in a file":
        train(optimizer, 1)
        optimizer.save(tmp_path / "before")
        optimizer = made()
        optimizer.load(tmp_path / "before")
    sum(p.pow(3).sum() for p in optimizer.parameters.values()).backward()
    monkeypatch.setattr("stages.common.tensor_file.blake2b", Slow)
    optimizer.step(tmp_path / "after")
    _, found = fingerprint._written[tmp_path / "after"]
    assert found == blake2b((tmp_path / "after").read_bytes(), digest_size=16).hexdigest()


def test_a_failure_on_the_way_leaves_nothing_to_be_taken_for_a_state(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    optimizer = StoredAdamW(parameters(), SETTINGS)
    sum(p.pow(2).sum() for p in optimizer.parameters.values()).backward()
    moved = []

    def full(names, rate):
        moved.extend(names)
        if len(moved) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(optimizer, "move", full)
    with pytest.raises(DiskError, match=r"state.*No space left"), publish(Path("data/state")) as scratch:
        optimizer.step(scratch)
    assert not Path("data/state").exists()
    assert not any(Path("data/.partial").iterdir())
    assert optimizer.step_count == 0


def test_without_a_step_nothing_is_written_on_the_way(tmp_path):
    optimizer = StoredAdamW(parameters(), SETTINGS)
    assert optimizer.step(tmp_path / "state") == (0.0, None)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_library_reads_the_state(tmp_path, dtype):
    optimizer = StoredAdamW(parameters(dtype), SETTINGS)
    train(optimizer, 1)
    optimizer.save(tmp_path / "state")
    found = load_file(tmp_path / "state")
    masters = [f"master/{name}" for name in "ab" if dtype != torch.float32]
    assert sorted(found) == ["exp_avg/a", "exp_avg/b", "exp_avg_sq/a", "exp_avg_sq/b", *masters]
    for name in masters:
        assert torch.equal(found[name], optimizer.masters[name[-1]])
    for name, master in optimizer.masters.items():
        assert torch.equal(found[f"exp_avg_sq/{name}"], optimizer.adamw.state[master]["exp_avg_sq"])


def test_masters_keep_updates_that_bfloat16_would_lose():
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = StoredAdamW({"w": weight}, Update(learning_rate=1e-4, max_grad_norm=1.0))
    for _ in range(60):
        weight.sum().backward()
        optimizer.collect_gradients()
        optimizer.step()
    assert weight.item() < 1.0
    assert optimizer.masters["w"].item() == pytest.approx(1 - 60e-4, abs=1e-5)


def test_adam_by_hand():
    # g = 4, norm clipped to 1: m = .1 / .1 = 1, v = .05 / .05 = 1, step = lr * 1 / (1 + eps)
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = StoredAdamW({"w": weight}, Update(learning_rate=0.5, max_grad_norm=1.0))
    (weight * 4).sum().backward()
    optimizer.collect_gradients()
    assert optimizer.step() == (4.0, 0.5)
    assert weight.item() == pytest.approx(1.5)


def test_a_state_of_another_policy_is_refused(tmp_path):
    first = StoredAdamW({"a": parameters()["a"]}, SETTINGS)
    train(first, 1)
    first.save(tmp_path / "state.safetensors")
    with pytest.raises(OptimizerError, match=r"state\.safetensors: no state for parameter b"):
        StoredAdamW(parameters(), SETTINGS).load(tmp_path / "state.safetensors")


def test_gradients_that_are_not_finite_stop_the_step():
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = StoredAdamW({"w": weight}, SETTINGS)
    (weight * float("nan")).sum().backward()
    with pytest.raises(OptimizerError, match="optimizer step 1: the gradient's norm is nan"):
        optimizer.step()
    assert weight.item() == 1.0
