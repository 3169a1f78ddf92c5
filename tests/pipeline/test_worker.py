"""How the worker knows that a file of code has been written to."""

import os

import pytest

from pipeline.worker import code_state


@pytest.fixture
def code(tmp_path):
    """A source file below a folder of others."""
    folder = tmp_path / "stages" / "score"
    folder.mkdir(parents=True)
    (folder.parent / "entry.py").write_text("")
    (folder / "length.py").write_text("ONE = 1")
    return folder / "length.py"


def state(code):
    return code_state(str(code.parents[1]))


def test_a_file_of_the_same_size_with_its_time_set_back(code):
    before, stat = state(code), code.stat()
    code.write_text("ONE = 2")
    os.utime(code, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert code.stat().st_mtime_ns == stat.st_mtime_ns
    assert state(code) != before


def test_new_removed_and_replaced_files(code):
    before = state(code)
    assert set(before) == {str(code), str(code.parents[1] / "entry.py")}
    (code.parent / "new.py").write_text("")
    assert state(code) != before
    (code.parent / "new.py").unlink()
    assert state(code) == before
    code.with_suffix(".new").write_text("ONE = 1")
    code.with_suffix(".new").replace(code)
    assert state(code) != before


def test_neither_a_lock_of_an_editor_nor_a_folder_linked_to_itself_is_followed(code):
    before = state(code)
    (code.parent / ".#length.py").symlink_to("somebody@somewhere.1")
    (code.parent / "again").symlink_to(code.parents[1])
    assert state(code) == before
