"""Statistics and claims on results that are made up, so that the answers are known."""

import itertools
import re

import polars as pl
import pytest

from pipeline.study.page.claims import above, claims, together
from pipeline.study.page.statistics import Results, differences, interval, summary
from pipeline.study.runs.tables import COSTS, CURVES, OUTCOMES

CONDITIONS = list(itertools.product((0.05, 0.1, 0.2), ("f00", "f10"), (0, 1, 2)))
PROMPTS = ("a", "b", "c", "d")


def results_of(rates, **costs):
    """`rates`: of each method a function of beta, flips and seed that gives its win-rate."""
    curves, outcomes, spent = [], [], []
    for method, rate in rates.items():
        for beta, flips, seed in CONDITIONS:
            run = {"method": method, "beta": beta, "flips": flips, "seed": seed}
            base = dict.fromkeys(CURVES, 0.0) | run | {"clipped": 0.01 if method.startswith("ppo") else None}
            curves.append(base | {"iteration": 0, "final": False, "win_rate": None})
            curves.append(base | {"iteration": 9, "final": True, "win_rate": rate(beta, flips, seed)})
            outcomes += [run | {"prompt_id": p, "outcome": rate(beta, flips, seed)} for p in PROMPTS]
            models = 4 if method.startswith("ppo") else 3
            spent.append(run | {"seconds": 1.0, "peak_memory_mb": 9.0, "models": models, "weights_mb": float(models)})
    frames = [pl.DataFrame(rows, schema=s) for rows, s in ((curves, CURVES), (outcomes, OUTCOMES), (spent, COSTS))]
    return Results(*frames)


def flat(rate, noise=0.0):
    return lambda beta, flips, seed: rate + noise * (seed - 1)


def verdicts(results):
    return {claim.published: claim.verdict for claim in claims(results)}


def test_differences_are_paired():
    """Runs vary far more than methods differ; paired, the difference is exact."""
    results = results_of({"rloo_k4": flat(0.7, 0.2), "raft": flat(0.65, 0.2)})
    found = differences(results, "rloo_k4", "raft")
    assert found == pytest.approx([0.05] * 18)
    assert above(found)[1] == "confirmed"


@pytest.mark.parametrize(
    ("rloo", "raft", "verdict"),
    [
        (flat(0.7), flat(0.6), "confirmed"),
        (flat(0.6), flat(0.7), "not confirmed"),
        (flat(0.6, 0.1), flat(0.6, -0.1), "cannot tell"),
    ],
)
def test_order_by_the_interval_of_the_difference(rloo, raft, verdict):
    assert above(differences(results_of({"rloo_k4": rloo, "raft": raft}), "rloo_k4", "raft"))[1] == verdict


def test_few_runs_cannot_tell():
    assert above([0.1] * 5)[1] == "cannot tell"
    assert above([0.1] * 6)[1] == "confirmed"


def test_parts_together():
    assert together(["confirmed", "confirmed"]) == "confirmed"
    assert together(["confirmed", "cannot tell"]) == "cannot tell"
    assert together(["confirmed", "cannot tell", "not confirmed"]) == "not confirmed"


def test_claims_of_methods_that_are_not_there_are_left_out():
    assert claims(results_of({"rloo_k2": flat(0.5)})) == []


def test_most_of_the_gain_is_a_share():
    rates = {"reinforce_baseline": flat(0.6), "rloo_k4": flat(0.68), "rloo_k8": flat(0.7)}
    published = "K = 4 gives most of the gain over one sample per prompt"
    found = {claim.published: claim for claim in claims(results_of(rates))}[published]
    assert found.verdict == "confirmed"
    assert "share 0.80 [0.80, 0.80]" in found.measured
    assert verdicts(results_of(rates | {"rloo_k4": flat(0.63)}))[published] == "not confirmed"
    assert verdicts(results_of(rates | {"rloo_k8": flat(0.5)}))[published] == "cannot tell"


def test_robustness_by_hand():
    """RAFT loses .1 to flips and swings by .3 over beta; RLOO neither."""
    raft = lambda beta, flips, seed: 0.6 - 0.1 * (flips == "f10") - 2 * (beta - 0.05)
    found = {claim.published: claim for claim in claims(results_of({"rloo_k4": flat(0.6), "raft": raft}))}
    beta = found["RLOO is more robust to beta than RAFT"]
    assert (beta.verdict, "raft 0.300" in beta.measured) == ("confirmed", True)
    noise = found["RLOO is more robust to noise in the preferences than RAFT"]
    assert (noise.verdict, "raft 0.100" in noise.measured) == ("confirmed", True)


def test_clipping_and_memory():
    rates = {name: flat(0.6) for name in ("rloo_k4", "ppo_lam095", "ppo_lam1")}
    found = {claim.published: claim for claim in claims(results_of(rates))}
    clipping = found["Clipping is hardly ever active (under 5 %)"]
    assert (clipping.verdict, "ppo_lam1 1.0%" in clipping.measured) == ("confirmed", True)
    assert found["RLOO needs less memory than PPO"].verdict == "confirmed"


def test_summary_by_method_and_by_condition():
    results = results_of({"rloo_k4": flat(0.7, 0.1), "raft": lambda b, f, s: 0.5 + (f == "f00") * 0.1})
    by_method = summary(results, ["method"])
    assert by_method["method"].to_list() == ["rloo_k4", "raft"]
    assert by_method["win_rate"].to_list() == pytest.approx([0.7, 0.55])
    assert by_method["runs"].to_list() == [18, 18]
    by_flips = summary(results, ["method", "flips"]).filter(method="raft")
    assert dict(by_flips.select("flips", "win_rate").rows()) == pytest.approx({"f00": 0.6, "f10": 0.5})


def test_interval_of_equal_values_is_a_point():
    assert interval([0.25] * 8) == (0.25, 0.25)


def test_measured_names_the_difference():
    found = claims(results_of({"rloo_k4": flat(0.7), "reinforce_baseline": flat(0.6)}))[0]
    assert re.search(r"\+0\.100 \[\+0\.100, \+0\.100\]", found.measured)
