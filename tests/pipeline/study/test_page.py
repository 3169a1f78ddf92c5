"""Statistics and claims on results that are made up, so that the answers are known."""

import itertools

import numpy as np
import polars as pl
import pytest

from pipeline.study.page.claims import above, claims, difference, together
from pipeline.study.page.statistics import T_975, Estimate, Results, estimate, summary
from pipeline.study.runs.tables import COSTS, CURVES, OUTCOMES

SEEDS = (0, 1, 2, 3, 4)
CONDITIONS = list(itertools.product((0.05, 0.1, 0.2), ("f00", "f10"), SEEDS))
PROMPTS = ("a", "b", "c", "d")
NOISE = {"f00": 0.0, "f10": 0.1}


def results_of(rates, clipped=0.01, prompt_effect=0.0):
    """`rates`: of each method a function of beta, flips and seed that gives its win-rate."""
    curves, outcomes, spent = [], [], []
    for method, rate in rates.items():
        ppo = method.startswith("ppo")
        for beta, flips, seed in CONDITIONS:
            run = {"method": method, "beta": beta, "flips": flips, "seed": seed}
            base = dict.fromkeys(CURVES, 0.0) | run | {"clipped": clipped if ppo else None}
            curves.append(base | {"iteration": 0, "final": False, "win_rate": None})
            curves.append(base | {"iteration": 9, "final": True, "win_rate": rate(beta, flips, seed)})
            effects = [prompt_effect * (place - 1.5) for place in range(len(PROMPTS))]
            outcomes += [
                run | {"prompt_id": p, "outcome": rate(beta, flips, seed) + e}
                for p, e in zip(PROMPTS, effects, strict=True)
            ]
            models = 4 if ppo else 3
            spent.append(run | {"seconds": 1.0, "peak_memory_mb": 9.0, "models": models, "state_mb": float(models)})
    frames = [pl.DataFrame(rows, schema=s) for rows, s in ((curves, CURVES), (outcomes, OUTCOMES), (spent, COSTS))]
    return Results(*frames, NOISE)


def flat(rate, noise=0.0):
    return lambda beta, flips, seed: rate + noise * (seed - 2)


def found_in(results):
    return {claim.published: claim for claim in claims(results)}


def test_an_estimate_by_hand():
    """Seed means .1, .2, .3 (variance .01) and prompt means .1, .3 (variance .02)."""
    found = estimate(np.array([[0.0, 0.2], [0.1, 0.3], [0.2, 0.4]]))
    reach = 4.303 * (0.01 / 3 + 0.02 / 2) ** 0.5
    assert (found.mean, found.low, found.high) == pytest.approx((0.2, 0.2 - reach, 0.2 + reach))


def test_one_seed_cannot_tell():
    found = estimate(np.array([[0.5, 0.6]]))
    assert above(found) == "cannot tell"
    assert str(found) == "+0.550 (one seed)"


def test_quantiles_are_those_of_student():
    """The .975 quantile has probability .025 above it: integrated by Simpson's rule over the density."""
    for degrees in (1, 2, 4, 10, 30):
        x = np.linspace(0.0, T_975[degrees - 1], 20001)
        density = (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
        tail = np.linspace(0.0, 1.0, 200001)[:-1]  # the same over [0, inf) by x = s / (1 - s)
        whole = (1 + (tail / (1 - tail)) ** 2 / degrees) ** (-(degrees + 1) / 2) / (1 - tail) ** 2
        assert np.trapezoid(density, x) / np.trapezoid(whole, tail) == pytest.approx(0.95, abs=2e-4)


def test_intervals_cover_what_they_should():
    """Seeds and prompts both vary, as they do in a study: 95 % intervals hold the truth at least 94 % of the time."""
    chance = np.random.default_rng(5)
    covered = 0
    for _ in range(1000):
        seeds, prompts = chance.normal(0, 0.03, (5, 1)), chance.normal(0, 0.1, (1, 64))
        found = estimate(0.04 + seeds + prompts + chance.normal(0, 0.2, (5, 64)))
        covered += found.low <= 0.04 <= found.high
    assert 940 <= covered < 1000


def test_differences_are_paired():
    """Runs and prompts vary far more than methods differ; paired, the difference is exact."""
    results = results_of({"rloo_k4": flat(0.7, 0.05), "raft": flat(0.65, 0.05)}, prompt_effect=0.05)
    found = difference(results, "rloo_k4", "raft")
    assert (found.mean, found.low, found.high) == pytest.approx((0.05, 0.05, 0.05))
    assert above(found) == "confirmed"


@pytest.mark.parametrize(
    ("rloo", "raft", "verdict"),
    [
        (flat(0.7), flat(0.6), "confirmed"),
        (flat(0.6), flat(0.7), "not confirmed"),
        (flat(0.62, 0.05), flat(0.6, -0.05), "cannot tell"),
    ],
)
def test_order_by_the_interval_of_the_difference(rloo, raft, verdict):
    assert above(difference(results_of({"rloo_k4": rloo, "raft": raft}), "rloo_k4", "raft")) == verdict


def test_conditions_are_averaged_before_seeds_are_counted():
    """Six conditions of one seed are no six observations: the interval is that of five seeds."""
    results = results_of({"rloo_k4": flat(0.6, 0.02), "raft": flat(0.6)})
    found = difference(results, "rloo_k4", "raft")
    assert found.high == pytest.approx(2.776 * (np.var([-0.04, -0.02, 0, 0.02, 0.04], ddof=1) / 5) ** 0.5)


def test_parts_together():
    assert together(["confirmed", "confirmed"]) == "confirmed"
    assert together(["confirmed", "cannot tell"]) == "cannot tell"
    assert together(["confirmed", "cannot tell", "not confirmed"]) == "not confirmed"


def test_claims_of_methods_that_are_not_there_are_left_out():
    assert claims(results_of({"rloo_k2": flat(0.5)})) == []


def test_most_of_the_gain_is_more_than_half():
    rates = {"reinforce_baseline": flat(0.6), "rloo_k4": flat(0.68), "rloo_k8": flat(0.7)}
    published = "K = 4 gives most of the gain over one sample per prompt"
    found = found_in(results_of(rates))[published]
    assert found.verdict == "confirmed"
    assert "K = 4 +0.080 [+0.080, +0.080], K = 8 +0.100 [+0.100, +0.100]" in found.measured
    assert found_in(results_of(rates | {"rloo_k4": flat(0.63)}))[published].verdict == "not confirmed"
    assert found_in(results_of(rates | {"rloo_k8": flat(0.5)}))[published].verdict == "cannot tell"


def test_no_worse_has_a_margin():
    published = "PPO does no worse without clipping (by more than 0.02)"
    for rate, verdict in ((0.6, "confirmed"), (0.59, "confirmed"), (0.57, "not confirmed")):
        rates = {"ppo_lam095": flat(0.6), "ppo_lam095_unclipped": flat(rate)}
        assert found_in(results_of(rates))[published].verdict == verdict


def test_robustness_by_hand():
    """RAFT loses .1 to flips and swings by .3 over beta; RLOO neither."""
    raft = lambda beta, flips, seed: 0.6 - 0.1 * (flips == "f10") - 2 * (beta - 0.05)
    found = found_in(results_of({"rloo_k4": flat(0.6), "raft": raft}))
    beta = found["RLOO is more robust to beta than RAFT"]
    assert (beta.verdict, "raft 0.300" in beta.measured) == ("confirmed", True)
    noise = found["RLOO is more robust to noise in the preferences than RAFT"]
    assert (noise.verdict, "raft 0.100" in noise.measured) == ("confirmed", True)


@pytest.mark.parametrize(("share", "verdict"), [(0.01, "confirmed"), (0.08, "not confirmed")])
def test_clipping(share, verdict):
    rates = {name: flat(0.6) for name in ("ppo_lam095", "ppo_lam1")}
    found = found_in(results_of(rates, clipped=share))["Clipping is hardly ever active (under 5 %)"]
    assert found.verdict == verdict
    assert f"ppo_lam1 {share:.1%}" in found.measured


def test_memory_is_by_count():
    found = found_in(results_of({"rloo_k4": flat(0.6), "ppo_lam095": flat(0.6)}))["RLOO holds less in memory than PPO"]
    assert found.verdict == "confirmed"
    assert "rloo_k4: 3 models, 3.0 MB" in found.measured


def test_summary_by_method_and_by_condition():
    raft = lambda beta, flips, seed: 0.5 + (flips == "f00") * 0.1
    results = results_of({"rloo_k4": flat(0.7, 0.1), "raft": raft}, prompt_effect=0.1)
    by_method = summary(results, ["method"])
    assert by_method["method"].to_list() == ["rloo_k4", "raft"]
    assert by_method["win_rate"].to_list() == pytest.approx([0.7, 0.55])
    assert by_method["runs"].to_list() == [30, 30]
    for low, high, middle in by_method.select("win_rate_low", "win_rate_high", "win_rate").rows():
        assert 0.05 < middle - low < 0.12  # four prompts with standard deviation .112: .056 of their mean
        assert 0.05 < high - middle < 0.12
    by_flips = summary(results, ["method", "flips"]).filter(method="raft")
    assert dict(by_flips.select("flips", "win_rate").rows()) == pytest.approx({"f00": 0.6, "f10": 0.5})


def test_an_estimate_reads_as_one():
    assert str(Estimate(0.1, 0.05, 0.15)) == "+0.100 [+0.050, +0.150]"
