"""JSON files that may or may not be there."""

import pytest

from stages.common.errors import StageError
from stages.common.read_json import read_json


def test_what_is_there_what_is_not_and_what_is_no_json(tmp_path):
    path = tmp_path / "found.json"
    assert read_json(path) == {}
    path.write_text('{"a": 1}')
    assert read_json(path) == {"a": 1}
    path.write_text("{")
    with pytest.raises(StageError, match=r"found\.json: cannot be read as JSON: .*; delete it, and run"):
        read_json(path)
    with pytest.raises(StageError, match="; do this"):
        read_json(path, "do this")
