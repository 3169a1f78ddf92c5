"""Files that the safetensors library writes, read without mapping them."""

import os
import time
from hashlib import blake2b
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages.common import fingerprint
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.tensor_file import DTYPES, TensorFile, writing


def write(tensors, path, metadata=None):
    with writing(path, tensors, metadata or {}) as put:
        for name, tensor in tensors.items():
            put(name, tensor)


def test_every_kind_of_tensor_is_read_as_it_was_written(tmp_path):
    tensors = {name: torch.arange(6).reshape(2, 3).to(dtype) for name, dtype in DTYPES.items()}
    tensors |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3)}
    save_file(tensors, tmp_path / "file", metadata={"steps": "3"})
    stored = TensorFile(tmp_path / "file")
    assert stored.metadata == {"steps": "3"}
    assert "F32" in stored
    assert "other" not in stored
    for name, found in zip(tensors, stored.read(tensors), strict=True):
        assert found.dtype == tensors[name].dtype
        assert torch.equal(found, tensors[name])


@pytest.mark.parametrize("metadata", [{}, {"steps": "3", "of": "é"}])
def test_what_is_written_is_what_the_library_writes(tmp_path, metadata):
    tensors = {f"b/{name}": torch.arange(6).reshape(2, 3).to(dtype) for name, dtype in DTYPES.items()}
    tensors |= {"a/ü": torch.ones(3), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3)}
    tensors |= {"turned": torch.arange(6.0).reshape(2, 3).t()}
    kinds = list(DTYPES.values())
    tensors = {
        name: tensors[name] for name in sorted(tensors, key=lambda name: (kinds.index(tensors[name].dtype), name))
    }
    write(tensors, tmp_path / "own", metadata)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "file", metadata or None)
    own, theirs = (tmp_path / "own").read_bytes(), (tmp_path / "file").read_bytes()
    assert len(own) == len(theirs)
    assert all(torch.equal(found, tensors[name]) for name, found in load_file(tmp_path / "own").items())
    if len(metadata) < 2:  # the library writes several notes in any order
        assert own == theirs


@pytest.mark.parametrize("folder", [False, True])
def test_the_hash_of_a_large_file_is_known_when_it_is_published(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    target = Path("data/there")
    large = {"a": torch.arange(300_000), "b": torch.zeros(7)}
    with publish(target) as scratch:
        if folder:
            scratch.mkdir()
            save_file(large, scratch / "weights")
            (scratch / "small").write_text("x")
        else:
            write(large, scratch)
    path = target / "weights" if folder else target
    wanted = blake2b(path.read_bytes(), digest_size=16).hexdigest()
    hashed = []
    real = fingerprint._hash
    monkeypatch.setattr(fingerprint, "_hash", lambda path: hashed.append(path) or real(path))
    assert fingerprint.file_hash(path) == wanted
    assert hashed == []
    with path.open("r+b") as file:
        file.write(b"!")
    assert fingerprint.file_hash(path) != wanted
    assert hashed == [path]


def test_a_file_that_was_replaced_since_it_was_hashed_is_hashed_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = Path("data/there")

    def replace(seconds):
        Path("other").write_bytes(b"x" * (1 << 21))
        os.replace("other", target)
        real(0.03)

    real = time.sleep
    monkeypatch.setattr(fingerprint.time, "sleep", replace)
    with publish(target) as scratch:
        write({"a": torch.arange(300_000)}, scratch)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert fingerprint.file_hash(target) == blake2b(b"x" * (1 << 21), digest_size=16).hexdigest()


def test_of_what_was_not_published_nothing_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = []

    def fail():
        with publish(Path("data/there")) as scratch:
            write({"a": torch.arange(300_000)}, scratch)
            assert scratch in fingerprint._written
            paths.append(scratch)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert paths[0] not in fingerprint._written


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    save_file({"a": torch.ones(4)}, tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(content[:-1])
    with pytest.raises(StageError, match="file: ends within a"):
        list(TensorFile(tmp_path / "file").read(["a"]))
    (tmp_path / "file").write_bytes(content[:20])
    with pytest.raises(StageError, match="file: not a file of tensors"):
        TensorFile(tmp_path / "file")
