"""A history that goes on from that of the window before: the same table, wherever the run is cut."""

import random

import polars as pl
import pytest

from stages.common import paths
from stages.common.errors import StageError
from stages.history.columns import ordered_columns
from stages.history.past import past_rows
from stages.history.rows import as_frame


def rows(count, seed):
    """Rows with columns that come and go, as rewards, judges and group sizes do."""
    rng = random.Random(seed)
    found = [{"iteration": 0, "eval/reward": 0.5, "alarms": None}]
    for number in range(1, count):
        row = {"iteration": number, "reward": rng.random(), "num_tokens": rng.randrange(1, 99), "kl": None}
        row |= {name: rng.randrange(9) for name in ("a", "b", "c") if rng.random() < 0.3}
        row |= {name: rng.random() for name in ("z", "eval/x", "eval/y") if rng.random() < 0.3}
        found.append(row | {"alarms": rng.choice([None, None, "kl: high"])})
    return found


def in_windows(all_rows, size):
    """The history as windows of `size` iterations make it, one after the other."""
    frame = as_frame([dict(row) for row in all_rows[: size + 1]])
    for end in range(2 * size, len(all_rows) + size - 1, size):
        entry = paths.iteration_name(frame.height - 1)
        path = paths.iteration(entry) / "history.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(path)
        frame = as_frame(past_rows(entry) + [dict(row) for row in all_rows[frame.height : end + 1]])
    return frame


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [1, 2, 3, 5, 20])
def test_windows_of_any_size_give_the_same_table(size, seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = rows(13, seed)
    whole = as_frame([dict(row) for row in made])
    found = in_windows(made, size)
    assert found.schema == whole.schema
    assert found.equals(whole)
    assert whole["num_tokens"].to_list()[-1] == sum(row.get("num_tokens", 0) for row in made)


def test_a_new_column_comes_after_the_one_before_it_in_its_row():
    found = ordered_columns(
        [["iteration", "eval/a", "alarms"], ["iteration", "x", "y"], ["new", "x", "more", "eval/b"]]
    )
    assert found == ["iteration", "new", "x", "more", "y", "eval/b", "eval/a", "alarms"]


def test_a_history_that_does_not_end_at_the_entry_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StageError, match=r"i0002/history\.parquet does not exist.*window_entry@i0002"):
        past_rows("i0002")
    path = paths.iteration("i0002") / "history.parquet"
    path.parent.mkdir(parents=True)
    pl.DataFrame({"iteration": [0, 1], "num_tokens": [0, 5]}).write_parquet(path)
    with pytest.raises(StageError, match="is not a history of the iterations up to i0002"):
        past_rows("i0002")
    path.write_bytes(b"no")
    with pytest.raises(StageError, match="cannot be read as Parquet"):
        past_rows("i0002")
    assert past_rows(None) == []
