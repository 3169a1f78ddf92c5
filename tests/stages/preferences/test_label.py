"""Labels by hand, and the shares that chance gives them; the split."""

import math

import polars as pl
import pytest

from stages.common.errors import StageError
from stages.common.params import SampledPairs
from stages.common.seeds import seed_of, uniforms
from stages.common.tables import PREFERENCES
from stages.preferences.label import label_pairs, prefers_first, probability_of_first
from stages.preferences.split import add_split, heldout_prompts

DRAWS = 4000


def options(**changes):
    return SampledPairs(prompts=1, gold="a:b", **changes)


def answers(*golds):
    """Two siblings for each pair of gold scores; an answer's ids are its gold score."""
    rows = [
        {"prompt_id": f"p{n}", "prompt": "?", "prompt_ids": [n], "completion": str(gold), "gold": gold}
        | {"completion_ids": [99 if gold is None else int(gold * 10) + 50]}
        for n, pair in enumerate(golds)
        for gold in pair
    ]
    return pl.DataFrame(rows, schema_overrides={"gold": pl.Float64})


@pytest.mark.parametrize(
    ("first", "second", "temperature", "probability"),
    [
        (1.0, 0.0, 0.0, 1.0),
        (0.0, 1e-9, 0.0, 0.0),
        (1.0, 0.0, 1.0, 1 / (1 + math.exp(-1))),
        (0.0, 1.0, 0.5, 1 / (1 + math.exp(2))),
        (3.0, 3.0, 2.0, 0.5),
        (1e6, -1e6, 1e-3, 1.0),
        (-1e6, 1e6, 1e-3, 0.0),
    ],
)
def test_probability(first, second, temperature, probability):
    assert probability_of_first(first, second, temperature) == pytest.approx(probability, abs=1e-12)


@pytest.mark.parametrize(
    ("gold", "changes", "share"),
    [
        ((1.0, 0.0), {}, 1.0),
        ((0.0, 1.0), {}, 0.0),
        ((1.0, 0.0), {"noise": 0.1}, 0.9),
        ((0.0, 1.0), {"noise": 0.1}, 0.1),
        ((0.0, 1.0), {"noise": 0.4}, 0.4),
        ((1.0, 0.0), {"temperature": 1.0}, 0.731),
        ((1.0, 0.0), {"temperature": 1.0, "noise": 0.2}, 0.8 * 0.731 + 0.2 * 0.269),
    ],
)
def test_share_of_labels(gold, changes, share):
    won = sum(prefers_first(*gold, options(**changes), 0, "name", n) for n in range(DRAWS))
    deviation = math.sqrt(share * (1 - share) / DRAWS)
    assert won / DRAWS == pytest.approx(share, abs=4 * deviation + 1e-12)


def test_noise_is_the_second_draw_of_the_pair():
    for n in range(50):
        swapped = uniforms(seed_of(0, "name", n, "label"), 2)[1] < 0.3
        assert prefers_first(1.0, 0.0, options(noise=0.3), 0, "name", n) == (not swapped)


def test_more_noise_swaps_the_same_pairs_and_others():
    swapped = [{n for n in range(300) if not prefers_first(1.0, 0.0, options(noise=p), 0, n)} for p in (0.1, 0.3)]
    assert swapped[0] < swapped[1]


def test_the_higher_gold_is_chosen_and_ties_and_unscorable_rows_are_left_out():
    frame, left_out = label_pairs(
        answers((0.5, 0.25), (0.25, 0.5), (1.0, 1.0), (None, 1.0), (0.0, None), (None, None), (-1.0, -2.0)),
        options(),
        0,
        "gold",
    )
    assert frame.select("pair_id", "chosen_gold", "rejected_gold", "flipped").rows() == [
        ("p0", 0.5, 0.25, False),
        ("p1", 0.5, 0.25, False),
        ("p6", -1.0, -2.0, False),
    ]
    assert frame["chosen"].to_list() == ["0.5", "0.5", "-1.0"]
    assert left_out == {"the same answer twice": 1, "not scorable": 3}


def test_equal_scores_of_different_answers_are_left_out_at_any_temperature():
    same = answers((1.0, 1.0)).with_columns(completion_ids=pl.Series([[1], [2]]))
    for temperature in (0.0, 1.0):
        frame, left_out = label_pairs(same, options(temperature=temperature, noise=0.5), 0, "gold")
        assert frame.is_empty()
        assert left_out == {"equal gold scores": 1}


def test_flipped_rows_have_the_gold_scores_the_other_way_round():
    pairs = answers(*[(1.0, 0.0), (0.0, 1.0)] * 1000)
    clean, _ = label_pairs(pairs, options(), 0, "gold")
    noisy, _ = label_pairs(pairs, options(noise=0.2), 0, "gold")
    assert not clean["flipped"].any()
    assert noisy["flipped"].mean() == pytest.approx(0.2, abs=4 * math.sqrt(0.16 / 2000))
    swapped = noisy.filter("flipped")
    assert set(swapped.select("chosen_gold", "rejected_gold").rows()) == {(0.0, 1.0)}
    assert set(swapped.select("chosen", "rejected").rows()) == {("0.0", "1.0")}
    kept = noisy.filter(~pl.col("flipped"))
    assert kept.equals(clean.join(kept.select("pair_id"), on="pair_id", maintain_order="right").select(kept.columns))


@pytest.mark.parametrize("what", [(1, "gold"), (0, "other")])
def test_noise_depends_on_seed_and_name(what):
    pairs = answers(*[(1.0, 0.0)] * 200)
    flips = [label_pairs(pairs, options(noise=0.3), *key)[0]["flipped"].to_list() for key in ((0, "gold"), what)]
    assert flips[0] != flips[1]


@pytest.mark.parametrize(
    ("prompts", "share", "count"), [(2, 0.1, 1), (2, 0.9, 1), (10, 0.1, 1), (10, 0.35, 4), (100, 0.1, 10), (3, 0.99, 2)]
)
def test_number_of_prompts_held_out(prompts, share, count):
    assert len(heldout_prompts([(n,) for n in range(prompts)], share, 0)) == count


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_pairs_for_two_sides(count):
    pairs = pl.DataFrame([{"pair_id": "p", "prompt_ids": [1]}] * count, schema=PREFERENCES)
    with pytest.raises(StageError, match=rf"^option: there are {count} pairs of {count} prompts; .* give more"):
        add_split(pairs, 0.1, 0, "option")
