"""Each alarm on a small history, at its threshold and just beyond."""

import pytest

from stages.common.params import Alarms
from stages.history.alarms import alarms_of

FIRST = {
    "iteration": 1,
    "entropy": 2.0,
    "kl": 0.0,
    "completions/mean_length": 20.0,
    "frac_reward_zero_std": 0.25,
    "mean_advantage": 0.0,
}


def names(options, *rows):
    return [alarm.name for alarm in alarms_of([{"iteration": 0}, FIRST, *rows], Alarms(**options))]


def later(**changes):
    return FIRST | {"iteration": 5} | changes


@pytest.mark.parametrize(
    ("options", "row", "expected"),
    [
        ({"entropy_below": 0.5}, later(entropy=0.5), []),
        ({"entropy_below": 0.5}, later(entropy=0.49), ["entropy"]),
        ({"kl_above": 4.0}, later(kl=4.0), []),
        ({"kl_above": 4.0}, later(kl=4.1), ["kl"]),
        ({"length_factor": 2.0}, later(**{"completions/mean_length": 40.0}), []),
        ({"length_factor": 2.0}, later(**{"completions/mean_length": 41.0}), ["length"]),
        ({"length_factor": 2.0}, later(**{"completions/mean_length": 10.0}), []),
        ({"length_factor": 2.0}, later(**{"completions/mean_length": 9.0}), ["length"]),
        ({"constant_reward_share": 0.9}, later(frac_reward_zero_std=0.89), []),
        ({"constant_reward_share": 0.9}, later(frac_reward_zero_std=0.9), ["constant_reward"]),
        ({"constant_reward_share": 0.9}, later(frac_reward_zero_std=None), []),  # no group could be scored
        ({"mean_advantage_above": 0.1}, later(mean_advantage=-0.11), ["not_centred"]),
        ({}, later(entropy=0.0, kl=99.0), []),  # nothing is on
        ({"entropy_below": 1.0, "kl_above": 1.0}, later(entropy=0.1, kl=9.0), ["entropy", "kl"]),
    ],
)
def test_thresholds(options, row, expected):
    assert names(options, row) == expected


def evaluated(iteration, proxy, gold, win_rate=None):
    values = {"eval/rewards/rm/mean": proxy, "eval/rewards/gold/mean": gold, "judge/win_rate": win_rate}
    return FIRST | {"iteration": iteration} | values


GOLD = {"proxy": "rm", "gold": "gold", "gold_falls_by": 0.05}


@pytest.mark.parametrize(
    ("options", "rows", "expected"),
    [
        (GOLD, [evaluated(5, 1.0, 0.5), evaluated(10, 2.0, 0.4)], ["proxy_against_gold"]),
        (GOLD, [evaluated(5, 1.0, 0.5), evaluated(10, 2.0, 0.46)], []),  # within the tolerance
        (GOLD, [evaluated(5, 1.0, 0.5), evaluated(10, 0.9, 0.3)], []),  # both fall
        (GOLD, [evaluated(5, 1.0, 0.5), evaluated(10, 2.0, 0.4), later(iteration=11)], []),  # told once, at 10
        (GOLD, [evaluated(5, 1.0, 0.5)], []),
        (
            {"proxy": "rm", "gold": "judge"},
            [evaluated(5, 1.0, 0.0, 0.6), evaluated(10, 2.0, 0.0, 0.5)],
            ["proxy_against_gold"],
        ),
    ],
)
def test_proxy_against_gold(options, rows, expected):
    assert names(options, *rows) == expected


def test_the_initial_policy_raises_none():
    assert alarms_of([{"iteration": 0}], Alarms(kl_above=1.0)) == []


@pytest.mark.parametrize(
    ("options", "rows", "expected"),
    [
        ({"entropy_below": 0.5}, [later(entropy=0.25)], "0.25 nats of entropy per token, below 0.5"),
        ({"kl_above": 4.0}, [later(kl=7.25)], "7.25 nats of KL per sequence, above 4"),
        (
            {"length_factor": 1.5},
            [later(**{"completions/mean_length": 41.0})],
            "41.0 tokens on average, 2.05 times the first iteration's 20.0, above 1.5",
        ),
        (
            {"length_factor": 1.5},
            [later(**{"completions/mean_length": 10.0})],
            "10.0 tokens on average, 0.50 times the first iteration's 20.0, below 1/1.5",
        ),
        (
            {"constant_reward_share": 0.9},
            [later(frac_reward_zero_std=0.95)],
            "95% of the groups have one reward only, the threshold is 90%",
        ),
        ({"mean_advantage_above": 0.1}, [later(mean_advantage=-0.11)], "0.11 mean advantage, absolute, above 0.1"),
        (
            GOLD,
            [evaluated(5, 1.0, 0.5), evaluated(10, 2.0, 0.4)],
            "since iteration 5 rm rose by 1, gold fell by 0.1, more than 0.05",
        ),
    ],
)
def test_texts_say_what_was_measured_and_where_the_threshold_is(options, rows, expected):
    (alarm,) = alarms_of([FIRST, *rows], Alarms(**options))
    assert alarm.text == expected


@pytest.mark.parametrize("options", [{"proxy": "rm"}, {"stop": ["kl"]}, {"length_factor": 1.0}])
def test_options_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match=r"proxy and gold|no threshold|greater than 1"):
        Alarms(**options)
