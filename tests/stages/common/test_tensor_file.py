"""Files that the safetensors library writes, read without mapping them."""

import pytest
import torch
from safetensors.torch import save_file

from stages.common.errors import StageError
from stages.common.tensor_file import DTYPES, TensorFile


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


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    save_file({"a": torch.ones(4)}, tmp_path / "file")
    content = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(content[:-1])
    with pytest.raises(StageError, match="file: ends within a"):
        list(TensorFile(tmp_path / "file").read(["a"]))
    (tmp_path / "file").write_bytes(content[:20])
    with pytest.raises(StageError, match="file: not a file of tensors"):
        TensorFile(tmp_path / "file")
