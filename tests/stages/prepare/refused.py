"""A project with prompts of an earlier run, which must survive what is refused."""

import pytest

from stages.common import paths
from stages.common.errors import StageError
from tests.stages.prepare.project import Project

GOOD = [{"prompt": f"What is {n}?", "answer": str(n)} for n in range(4)]
USER = {"role": "user", "content": "Hi"}
TALK = [{"prompt": [USER]}, {"prompt": [USER | {"content": "Ho"}]}]


def with_earlier_table(folder, monkeypatch):
    made = Project(folder, monkeypatch)
    made.of_rows(GOOD, "earlier.jsonl")
    return made


def assert_refused(project, parts, prepare):
    outputs = (paths.PROMPTS, paths.PROMPTS_JSON)
    before = [path.read_bytes() for path in outputs]
    with pytest.raises(StageError) as caught:
        prepare()
    for part in parts:
        assert part in str(caught.value)
    assert [path.read_bytes() for path in outputs] == before
