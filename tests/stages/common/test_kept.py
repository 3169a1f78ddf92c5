"""Kept work: the same bits or nothing, under the same key or not at all, and never at the cost of the stage."""

import os
import resource
import time
from contextlib import contextmanager
from types import SimpleNamespace

import polars as pl
import pytest
import torch

from stages.common.kept.keeping import WEEK, Keeping, current, keeping, sweep
from stages.common.kept.key import frame_hash, identify, key_of, weights_hash
from stages.common.kept.parts import Work, in_parts
from stages.common.kept.shard import read_shard, write_shard
from stages.common.kept.steps import resumed, state_of
from stages.common.optimizer import StoredAdamW
from stages.common.params import AdamW, Schedule
from stages.common.paths import PARTIAL, RESUME
from stages.rollout.samples import Sample, from_part, to_part
from tests.tiny import llama

ODD = [0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("nan")]


class Journal:
    def __init__(self):
        self.said, self.found = [], []

    def say(self, text):
        self.said.append(text)

    def resumed(self, done, total, unit):
        self.found.append((done, total, unit))


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def bits(tensor):
    return tensor.reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_shard_gives_the_same_bits(tmp_path, dtype):
    tensors = {"a": torch.tensor(ODD, dtype=dtype), "b": torch.zeros(0, 3, dtype=dtype), "c": torch.tensor(7)}
    notes = {"x": [0.1, 1 / 3, None], "n": 2**60}
    write_shard(tmp_path / "shard", "key", notes, tensors)
    found, read = read_shard(tmp_path / "shard", "key")
    assert found == notes
    assert {name: (t.dtype, t.shape, bits(t)) for name, t in read.items()} == {
        name: (t.dtype, t.shape, bits(t)) for name, t in tensors.items()
    }


def test_a_byte_anywhere_that_says_something_is_noticed(tmp_path):
    """Of the header, the notes, the hash or the tensors; a space that pads the header says nothing."""
    path = tmp_path / "shard"
    write_shard(path, "key", [1], {"a": torch.arange(3)})
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        found = read_shard(path, "key")
        assert found is None or content[place] == ord(" "), place
        assert found is not None or not path.exists()


@pytest.mark.parametrize("length", [0, 4, 60, -1])
def test_a_file_that_was_cut_off_is_removed(tmp_path, length):
    path = tmp_path / "shard"
    write_shard(path, "key", [1], {"a": torch.arange(3)})
    path.write_bytes(path.read_bytes()[:length])
    assert read_shard(path, "key") is None
    assert not path.exists()


def test_a_file_under_another_key_is_not_read(tmp_path):
    write_shard(tmp_path / "shard", "key", [1], {"a": torch.arange(3)})
    assert read_shard(tmp_path / "shard", "another") is None


def test_samples_come_back_as_they_were():
    samples = [Sample([1, 2], [0.1, -1 / 3], [5e-324, 2.0], stopped=True), Sample([7], [-1e300], [0.3], stopped=False)]
    assert from_part(to_part(samples)) == samples


def work(model, **content):
    return Work("kind", "batches", ("rollout",), model, content)


def run(every, computed, stop_at=None, journal=None, content=None):
    """Five parts in a stage; `computed` gets the numbers of those that are computed, and `stop_at` fails."""
    journal = journal or Journal()

    def compute(number):
        if number == stop_at:
            raise RuntimeError("stopped")
        computed.append(number)
        return {"x": torch.tensor([number / 3], dtype=torch.float64)}

    with keeping("rollout", "i0001", every, journal):
        return [part["x"].item() for part in in_parts(work(MODEL, **(content or {})), 5, compute)], journal


MODEL = llama()
WHOLE = [number / 3 for number in range(5)]


@pytest.mark.parametrize("every", [0, 1000])
def test_parts_that_are_finished_are_not_computed_again(every):
    first, second = [], []
    with pytest.raises(RuntimeError):
        run(every, first, stop_at=3)
    assert len(list(RESUME.rglob("*.safetensors"))) == (3 if every == 0 else 1)  # one file of all where there was time
    found, journal = run(every, second)
    assert (first, second, found) == ([0, 1, 2], [3, 4], WHOLE)
    assert journal.found == [(3, 5, "batches")]
    assert not list(RESUME.rglob("*.safetensors"))
    assert not list(PARTIAL.glob("*"))


def test_a_short_stage_writes_nothing():
    run(1000, [])
    assert not RESUME.exists()


def test_without_a_stage_nothing_is_kept():
    assert current() is None
    assert len(list(in_parts(work(MODEL), 2, lambda number: {"x": torch.tensor(number)}))) == 2
    assert not RESUME.exists()


def test_other_content_is_other_work():
    with pytest.raises(RuntimeError):
        run(0, [], stop_at=3)
    computed = []
    _, journal = run(0, computed, content={"temperature": 2})
    assert computed == [0, 1, 2, 3, 4]
    assert not journal.found


@contextmanager
def no_room_for_files(size):
    """The system refuses files of more than `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_has_no_room_does_not_end_the_stage():
    journal = Journal()
    with keeping("rollout", "i0001", 0, journal), no_room_for_files(100_000):
        parts = list(in_parts(work(MODEL), 3, lambda number: {"x": torch.ones(100_000) * number}))
        assert not list(PARTIAL.glob("*"))
    (said,) = journal.said
    assert "finished work cannot be kept in data/.cache/resume/rollout/i0001 (Error while serializing" in said
    assert [part["x"][0].item() for part in parts] == [0, 1, 2]


def test_what_nobody_went_on_with_goes_after_a_week():
    old, new = (RESUME / "rollout" / name / "kind.key" / "f" for name in ("i0001", "i0002"))
    for path in (old, new):
        path.parent.mkdir(parents=True)
        path.touch()
    for path in (old, *old.parents[:2]):
        os.utime(path, (time.time() - WEEK - 60,) * 2)
    sweep()
    assert not old.exists()
    assert new.exists()


def test_a_key_is_of_weights_code_threads_precision_and_content():
    code, content = {"rollout": "a"}, {"x": 1}
    keys = [key_of(code, MODEL, content), key_of({"rollout": "b"}, MODEL, content), key_of(code, MODEL, {"x": 2})]
    changed = llama()
    with torch.no_grad():
        next(changed.parameters()).view(-1)[5] += 1e-7
    keys += [key_of(code, changed, content), key_of(code, llama().to(torch.bfloat16), content)]
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    keys.append(key_of(code, MODEL, content))
    torch.set_num_threads(threads)
    assert len(set(keys)) == len(keys)
    assert key_of(code, llama(), content) == keys[0]


def test_weights_that_are_being_changed_count_as_they_are_in_memory():
    model = llama()
    identify(model, "files")
    known = key_of({}, model, {})
    identify(model, None)
    assert key_of({}, model, {}) != known
    assert weights_hash(model) == weights_hash(llama())


def test_a_table_is_known_by_its_values_types_and_order():
    frame = pl.DataFrame({"a": [1, 2], "b": [[0.1], [0.2, 0.3]]})
    others = [frame.reverse(), frame.with_columns(pl.col("a").cast(pl.Int32)), frame.rename({"a": "c"})]
    assert len({frame_hash(one) for one in (frame, *others)}) == 4
    assert frame_hash(frame.clone()) == frame_hash(pl.concat([frame.head(1), frame.tail(1)]))


SETTINGS = AdamW(learning_rate=0.1, schedule=Schedule(horizon=None))


def toy(dtype):
    """Two parameters, of which the second has a gradient in every other step alone."""
    torch.manual_seed(0)
    first, second = (torch.nn.Parameter(torch.randn(4).to(dtype)) for _ in range(2))
    model = SimpleNamespace(first=first, second=second)
    return model, StoredAdamW({"first": first, "second": second}, SETTINGS)


def train(dtype, stop=None):
    """Four steps of three micro-batches; `stop`: (step, micro-batches) after which a kill comes."""
    model, optimizer = toy(dtype)
    mine = current()
    state = state_of(work(MODEL, dtype=str(dtype)), optimizer) if mine else None
    kept = resumed(state, 4, "steps")
    for number in range(len(kept.rows), 4):
        total = kept.inside.numbers.get("total", 0.0)
        for micro in range(kept.inside.done, 3):
            used = [model.first] + ([model.second] if number % 2 else [])
            loss = sum(((p.float() - number - 0.1 * micro) ** 2).sum() for p in used)
            torch.autograd.backward(loss)
            optimizer.collect_gradients()
            total += loss.item()
            if micro < 2:
                kept.within(micro + 1, {"total": total})
            if stop == (number, micro):
                raise RuntimeError("stopped")
        norm, _ = optimizer.step()
        kept.taken({"step": number, "total": total, "norm": norm})
    return kept.rows, [bits(p.detach()) for p in (model.first, model.second, *optimizer.masters.values())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stop", [(0, 0), (0, 1), (1, 2), (2, 1), (3, 0)])
def test_training_goes_on_as_if_nothing_had_been(dtype, stop):
    """Also where parameters have had unequal numbers of steps, which the optimizer's own file does not tell apart."""
    undisturbed = train(dtype)
    with pytest.raises(RuntimeError), keeping("update", "i0001", 0, Journal()):
        train(dtype, stop)
    assert len(list(RESUME.rglob("*.safetensors"))) == 1
    with keeping("update", "i0001", 0, journal := Journal()):
        found = train(dtype)
    assert found == undisturbed
    assert journal.found == [(stop[0], 4, "steps")]


def test_a_state_of_another_training_goes_when_a_new_one_is_kept():
    with pytest.raises(RuntimeError), keeping("update", "i0001", 0, Journal()):
        train(torch.float32, (1, 1))
    (before,) = RESUME.rglob("*.safetensors")
    with pytest.raises(RuntimeError), keeping("update", "i0001", 0, Journal()):
        train(torch.bfloat16, (0, 1))
    (after,) = RESUME.rglob("*.safetensors")
    assert before.parent != after.parent


def test_nothing_is_kept_once_the_code_has_changed(tmp_path):
    journal = Journal()
    mine = Keeping("rollout", "i0001", 0, journal)
    mine.code = mine.code | {"rollout": "what it was when the stage began"}
    mine.attempt(("common",), lambda: (tmp_path / "a").touch())
    mine.attempt(("rollout", "common"), lambda: (tmp_path / "b").touch())
    assert (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
    assert journal.said == ["its code has changed since it started: nothing more is kept for a run that is killed"]
