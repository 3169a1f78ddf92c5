"""Packing: what sees what, budgets, and that nothing is lost."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from stages.common.block_mask import block_mask
from stages.common.packing import Group, PackedRow, best_fit, longest, pack, split_groups


def test_block_mask_by_hand():
    row = PackedRow()
    row.append(Group([1, 2], [[3, 4], [5]], [0, 1]))
    row.append(Group([6], [[7]], [2]))
    expected = [
        [1, 0, 0, 0, 0, 0, 0],  # prompt
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],  # first completion: prompt and itself
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0],  # second completion: prompt and itself, not its sibling
        [0, 0, 0, 0, 0, 1, 0],  # another prompt sees nothing of the first
        [0, 0, 0, 0, 0, 1, 1],
    ]
    assert block_mask(row, torch.device("cpu"))[0, 0].int().tolist() == expected
    assert row.positions_L == [0, 1, 2, 3, 2, 0, 1]
    assert row.predict_T == [1, 2, 1, 5]
    assert row.target_T == [3, 4, 5, 7]
    assert row.row_T == [0, 0, 1, 2]


groups = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.integers(1, 6), min_size=1, max_size=4)), min_size=1, max_size=5
)


@given(groups, st.integers(1, 40), st.booleans())
def test_every_completion_is_packed_once_and_within_the_budget(shapes, budget, one_by_one):
    made, row = [], 0
    for prompt, lengths in shapes:
        made.append(
            Group([9] * prompt, [[row + j + 100] * n for j, n in enumerate(lengths)], range(row, row + len(lengths)))
        )
        row += len(lengths)
    packed = pack(made, budget, one_by_one=one_by_one)
    counted = [r for p in packed for r in dict.fromkeys(p.row_T)]
    assert sorted(counted) == list(range(row))
    for p in packed:
        assert all(token == r + 100 for token, r in zip(p.target_T, p.row_T, strict=True))
        alone = len(set(p.row_T)) == 1
        assert len(p.ids_L) <= budget or alone
        assert p.is_plain or not one_by_one


def test_a_group_over_the_budget_is_split_and_repeats_its_prompt():
    pieces = split_groups([Group([1, 2], [[3], [4], [5]], [0, 1, 2])], 4)
    assert [(list(p.prompt_ids), [list(c) for c in p.completions], list(p.rows)) for p in pieces] == [
        ([1, 2], [[3], [4]], [0, 1]),
        ([1, 2], [[5]], [2]),
    ]


def sizes(packed):
    return [len(row.ids_L) for row in packed]


def members(packed):
    return [list(dict.fromkeys(row.row_T)) for row in packed]


def one_each(*tokens):
    return [Group([9] * (n - 1), [[8]], [i]) for i, n in enumerate(tokens)]


def test_rows_are_few_and_even():
    packed = pack(one_each(6, 3, 4, 7, 3), 20)
    assert sizes(packed) == [13, 10]  # and not 20 and 3
    assert members(packed) == [[3, 1, 4], [0, 2]]
    assert vars(pack(one_each(6, 3, 4, 7, 3), 20)[0]) == vars(packed[0])


def test_where_even_rows_would_be_longer_the_fullest_that_has_room_is_filled_up():
    assert sizes(pack(one_each(3, 3, 2, 2, 2), 7)) == [6, 6]  # and not 7 and 5
    packed = pack(one_each(4, 3, 4, 3, 4, 3, 3), 12)
    assert sizes(packed) == [12, 12]
    assert members(packed) == [[0, 2, 4], [1, 3, 5, 6]]


@given(groups, st.integers(12, 60))
def test_the_longest_row_is_first_and_rows_are_as_few_as_best_fit_has(shapes, budget):
    made = [Group([9] * prompt, [[5] * n for n in lengths], range(len(lengths))) for prompt, lengths in shapes]
    found = sizes(pack(made, budget))
    assert found == sorted(found, reverse=True)
    wanted = best_fit(sorted((piece.tokens for piece in split_groups(made, budget)), reverse=True), budget)
    assert len(found) == len(set(wanted))
    assert found[0] <= longest(sorted((piece.tokens for piece in split_groups(made, budget)), reverse=True), wanted)
    assert sum(found) <= budget * len(found)
    assert len(found) < 2 or sum(found) > budget * len(found) / 2
