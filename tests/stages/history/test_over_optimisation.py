"""The curve of over-optimisation: evaluated iterations only, and the first reward that is only measured."""

import polars as pl

from stages.history.run import over_optimisation

HISTORY = pl.DataFrame(
    {
        "iteration": [0, 1, 2],
        "eval/kl": [0.0, None, 2.5],
        "eval/reward": [0.1, None, 0.9],
        "eval/rewards/gold/mean": [0.4, None, 0.6],
        "eval/rewards/other/mean": [7.0, None, 7.0],
    }
)


def test_proxy_and_gold_by_kl():
    found = over_optimisation(HISTORY, ["gold", "other"])
    assert found.columns == ["iteration", "kl", "proxy", "gold"]
    assert found.rows() == [(0, 0.0, 0.1, 0.4), (2, 2.5, 0.9, 0.6)]


def test_without_a_measured_reward_gold_is_empty():
    assert over_optimisation(HISTORY, [])["gold"].to_list() == [None, None]
