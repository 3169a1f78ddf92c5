"""Which requests are sampled together: functions of counts alone."""

import pytest

from stages.rollout.chunks import BUDGETS, PIECES, SEQUENCES, admitted, chunks
from stages.rollout.samples import Request, SamplerSettings

LENGTHS = [30, 10, 20, 10, 50, 40]


def requests(lengths, k=2):
    return [Request([1] * length, range(k)) for length in lengths]


def settings(budget, new=10):
    return SamplerSettings(new, 1.0, frozenset(), budget)


@pytest.mark.parametrize("budget", [1, 30, 60, 100, 10_000])
@pytest.mark.parametrize("spread", [False, True])
def test_every_request_is_in_one_chunk_shortest_prompts_first(budget, spread):
    found = chunks(requests(LENGTHS), settings(budget), spread=spread)
    assert [i for chunk in found for i in chunk] == [1, 3, 2, 0, 5, 4]
    assert all(found)


def test_a_chunk_has_four_budgets_at_most_but_for_one_request():
    made = requests([20] * 40)  # 60 places each
    for budget in (60, 120, 300):
        found = chunks(made, settings(budget), spread=False)
        assert max(60 * len(chunk) for chunk in found) <= BUDGETS * budget
        assert max(map(len, found)) - min(map(len, found)) <= 1  # no small rest
    assert len(chunks(made, settings(1), spread=False)) == 40


@pytest.mark.parametrize(("groups", "pieces"), [(63, 1), (64, 1), (127, 1), (128, 2), (640, 10), (64 * 40, PIECES)])
def test_small_work_is_spread_as_long_as_a_piece_keeps_64_sequences(groups, pieces):
    made = requests([20] * groups, k=1)
    found = chunks(made, settings(10**9), spread=True)
    assert len(found) == pieces
    assert pieces == 1 or min(map(len, found)) >= SEQUENCES
    assert len(chunks(made, settings(10**9), spread=False)) == 1


@pytest.mark.parametrize(
    ("live", "longest", "budget", "count"),
    [
        (0, 0, 1, 1),  # one, whatever it takes
        (0, 0, 119, 2),  # 2 x 20, then 4 x 20; 6 x 30 is too much
        (0, 0, 180, 3),
        (0, 0, 10_000, 6),
        (1, 10, 26, 0),  # less than a quarter is free
        (1, 10, 60, 1),  # 3 x 20 places
        (1, 10, 100, 2),  # 5 x 20
        (1, 40, 150, 1),  # 3 x 50: the longest prompt that lives counts for all
        (1, 40, 149, 0),
    ],
)
def test_who_joins(live, longest, budget, count):
    waiting = requests(sorted(LENGTHS))
    assert admitted(waiting, live, longest, settings(budget), refill=True) == count
    assert admitted(waiting, live, longest, settings(budget), refill=False) == (0 if live else count)
    assert admitted([], live, longest, settings(budget), refill=True) == 0
