"""Names of iterations, and seeds: distinct, stable, independent of order."""

import itertools

import numpy as np
import pytest

from stages.common import paths
from stages.common.errors import StageError
from stages.common.seeds import seed_of, uniforms


@pytest.mark.parametrize(("number", "name"), [(0, "i0000"), (3, "i0003"), (9999, "i9999"), (12345, "i12345")])
def test_names_and_numbers_are_inverse(number, name):
    assert paths.iteration_name(number) == name
    assert paths.iteration_number(name) == number


@pytest.mark.parametrize(
    "name", ["", "3", "0003", "i3", "i003", "I0003", "i0003 ", "i0003\n", "xi0003", "i-001", "i00a3"]
)
def test_other_names_are_refused(name):
    with pytest.raises(StageError) as error:
        paths.iteration_number(name)
    assert repr(name) in str(error.value)
    assert "i0003" in str(error.value)


@pytest.mark.parametrize(("name", "before"), [("i0001", "i0000"), ("i0010", "i0009"), ("i10000", "i9999")])
def test_previous(name, before):
    assert paths.previous(name) == before


def test_names_sort_like_their_numbers():
    names = [paths.iteration_name(number) for number in range(1200)]
    assert names == sorted(names)


def test_no_two_files_of_a_run_share_a_path():
    makers = (
        paths.rollouts,
        paths.scores,
        paths.advantages,
        paths.steps,
        paths.evaluation,
        paths.generations,
        paths.policy,
        paths.optimizer,
    )
    found = [maker(name) for maker in makers for name in ("i0000", "i0001")]
    assert len({*found, paths.BASE, paths.PROMPTS, paths.HISTORY, paths.HISTORY_CSV}) == len(found) + 4
    assert all(path.is_relative_to(paths.DATA) for path in found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab", "")),
        (("a", "b"), ("", "ab")),
        (("a", "b"), ("b", "a")),
        (("a", "b"), ("ab",)),
        (("a",), ("a", "")),
        ((1, 23), (12, 3)),
        ((0, "split", "q"), (0, "constraints", "q")),
        ((0, "epoch", 1, "p"), (0, "epoch", 2, "p")),
    ],
)
def test_seeds_tell_their_parts_apart(one, other):
    assert seed_of(*one) != seed_of(*other)


def test_ten_thousand_keys_have_ten_thousand_seeds():
    keys = itertools.product(range(5), range(10), [f"train-{number:05d}" for number in range(50)], range(4))
    seeds = {seed_of(*key) for key in keys}
    assert len(seeds) == 5 * 10 * 50 * 4


def test_seeds_are_the_same_on_every_machine_and_fit_into_64_bits():
    assert seed_of(0, 1, "train-00000", 0) == 3748874725991027657
    assert seed_of() == 16476032584258269876
    assert all(0 <= seed_of(part) < 2**64 for part in range(1000))
    assert max(seed_of(part) for part in range(1000)) > 2**63


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_uniforms_lie_in_the_half_open_unit_interval(seed):
    drawn = uniforms(seed, 10_000)
    assert drawn.dtype == np.float64
    assert drawn.shape == (10_000,)
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    assert abs(drawn.mean() - 0.5) < 0.02
    assert len(np.unique(drawn)) == 10_000


def test_uniforms_are_deterministic_and_belong_to_their_seed():
    assert np.array_equal(uniforms(7, 100), uniforms(7, 100))
    assert not np.isin(uniforms(7, 100), uniforms(8, 100)).any()


def test_more_uniforms_begin_with_the_same_ones():
    assert np.array_equal(uniforms(7, 100)[:10], uniforms(7, 10))


def test_uniforms_have_a_pinned_value():
    assert uniforms(1, 2).tolist() == [0.3035680343067586, 0.8487087496857769]


def test_a_policy_of_offline_has_a_folder_of_its_own_and_the_number_of_no_iteration():
    assert [str(paths.policy(name)) for name in ("i0003", "dpo")] == ["data/policies/i0003", "data/offline/dpo/policy"]
    assert [paths.iteration_column(name) for name in ("i0000", "i0003", "dpo", "i3")] == [0, 3, -1, -1]
    with pytest.raises(StageError, match="not the name of an iteration"):
        paths.iteration_column("i00003")
