"""Content hashes: every change of a byte or a name is noticed, unchanged files are read once."""

import os
import time

import pytest

from stages.common import fingerprint
from stages.common.fingerprint import file_hash, folder_hash


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "policy"
    (root / "sub").mkdir(parents=True)
    (root / "config.json").write_text("{}")
    (root / "sub" / "model.safetensors").write_bytes(b"abcd")
    return root


def overwrite_secretly(path, data):
    """Other bytes in place, with size and mtime put back as they were."""
    before = path.stat()
    assert len(data) == before.st_size
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # until the file system's clock has ticked
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


def test_hash_is_of_the_bytes(tmp_path):
    for name, text in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / name).write_text(text)
    assert file_hash(tmp_path / "a") == file_hash(tmp_path / "b") != file_hash(tmp_path / "c")


def test_changed_bytes_are_noticed_even_with_size_and_mtime_put_back(folder):
    path = folder / "sub" / "model.safetensors"
    before = file_hash(path), folder_hash(folder)
    overwrite_secretly(path, b"abce")
    assert file_hash(path) != before[0]
    assert folder_hash(folder) != before[1]


def test_replaced_file_is_noticed(folder):
    path, other = folder / "config.json", folder.parent / "other"
    before = folder_hash(folder)
    other.write_text("[]")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(other, path)
    assert folder_hash(folder) != before


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "config.json").rename(root / "config2.json"),
        lambda root: (root / "config.json").rename(root / "sub" / "config.json"),
        lambda root: (root / "config.json").unlink(),
        lambda root: (root / "empty").write_bytes(b""),
    ],
    ids=["renamed", "moved", "removed", "added"],
)
def test_changed_set_of_files_is_noticed(folder, change):
    before = folder_hash(folder)
    change(folder)
    assert folder_hash(folder) != before


def test_swapped_contents_are_noticed(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    before = folder_hash(tmp_path)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    (tmp_path / "c").rename(tmp_path / "b")
    assert folder_hash(tmp_path) != before


def test_copy_elsewhere_has_the_same_hash(folder, tmp_path):
    copy = tmp_path / "elsewhere"
    (copy / "sub").mkdir(parents=True)
    (copy / "sub" / "model.safetensors").write_bytes(b"abcd")
    (copy / "config.json").write_text("{}")
    assert folder_hash(copy) == folder_hash(folder)


def test_folder_put_back_has_its_old_hash(folder):
    before = folder_hash(folder)
    overwrite_secretly(folder / "sub" / "model.safetensors", b"abce")
    assert folder_hash(folder) != before
    overwrite_secretly(folder / "sub" / "model.safetensors", b"abcd")
    assert folder_hash(folder) == before


def test_unchanged_file_is_not_read_again(folder, monkeypatch):
    time.sleep(fingerprint.SETTLED_NS / 1e9)
    before = folder_hash(folder)

    def refuse():
        raise AssertionError("read again")

    monkeypatch.setattr(fingerprint, "blake2b", lambda *args, **kwargs: refuse())
    assert file_hash(folder / "config.json")
    monkeypatch.undo()
    assert folder_hash(folder) == before
