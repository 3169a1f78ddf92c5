"""Which iterations, and under which name."""

import pytest

from stages.common import paths
from stages.common.errors import StageError
from stages.rescore.selection import check_name, select

KNOWN = [f"i000{number}" for number in range(1, 7)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in KNOWN[:5]:
        path = paths.rollouts(name)
        path.parent.mkdir(parents=True)
        path.touch()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all", KNOWN[:5]),
        ("i0003", ["i0003"]),
        ("i0003, i0001", ["i0001", "i0003"]),
        ("i0002-i0004", ["i0002", "i0003", "i0004"]),
        ("i0001-i0002,i0002,i0004 - i0005", ["i0001", "i0002", "i0004", "i0005"]),
    ],
)
def test_select(text, expected):
    assert select(text, KNOWN) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i0009", "no iteration i0009; the plan has i0001 to i0006"),
        ("i0000", "no iteration i0000"),
        ("i0006", "data/iterations/i0006/rollouts.parquet does not exist"),
        ("3", "'3' is not the name of an iteration"),
        ("i0004-i0002", "the first comes before the last: i0002-i0004"),
        ("", "'' is not the name of an iteration"),
        ("i0001,", "'' is not the name of an iteration"),
    ],
)
def test_refuses(text, message):
    with pytest.raises(StageError) as error:
        select(text, KNOWN)
    assert message in str(error.value)
    assert "i000" in str(error.value)


def test_all_of_nothing():
    with pytest.raises(StageError, match=r"i0006/rollouts\.parquet does not exist, nor"):
        select("all", ["i0006"])


@pytest.mark.parametrize("name", ["scores", "i0003", "../x", "a@b", "", "1a", "a b", ".hidden"])
def test_names_that_stand_for_something_else(name):
    with pytest.raises(StageError, match="NAME"):
        check_name(name)


@pytest.mark.parametrize("name", ["brief", "Brief-2", "i_3", "interesting"])
def test_names(name):
    check_name(name)
