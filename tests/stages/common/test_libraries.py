"""Modules that take long to import: the journal says so, and a broken library is told with what to do."""

import sys

import pytest

from stages.common.journal import journalled, read_journal
from stages.common.libraries import LibraryError, imported


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder that modules are imported from, and the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_it_is_said_once_and_no_part_of_the_seconds(modules):
    (modules / "takes_long.py").write_text("import time; time.sleep(0.3); VALUE = 7")
    with journalled("rollout", "i0001") as journal:
        assert imported("takes_long", journal).VALUE == 7
        assert journal.seconds < 0.2
        assert imported("takes_long", journal).VALUE == 7
    assert [record["event"] for record in read_journal("rollout", "i0001")] == ["started", "loading", "finished"]


@pytest.mark.parametrize("error", ["ImportError('no such symbol')", "OSError('libnothing.so.1: cannot open')"])
def test_what_cannot_be_imported_is_named_with_the_remedy(modules, error):
    (modules / "broken_library.py").write_text(f"raise {error}")
    (modules / "needs_it.py").write_text("import broken_library")
    with pytest.raises(LibraryError) as told, journalled("rollout", "i0001") as journal:
        imported("needs_it", journal)
    assert error.partition("(")[2].strip("')") in str(told.value)
    assert "make setup" in str(told.value)
    assert read_journal("rollout", "i0001")[-1]["error"] == str(told.value)
