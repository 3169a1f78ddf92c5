"""What has been published of these methods, beside what was measured here.

A claim that one thing is better than another is confirmed where the whole interval of the paired difference is above 0,
not confirmed where it is below, and else the study cannot tell. Claims are those of Ahmadian et al. 2024
(arXiv 2402.14740). A claim on a method that the study does not have is left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl

from pipeline.study.page.statistics import CONFIDENCE, RESAMPLES, SEED, Results, differences, interval

Verdict = Literal["confirmed", "not confirmed", "cannot tell"]
OTHER_LAMBDAS = ("ppo_lam0", "ppo_lam05", "ppo_lam09", "ppo_lam095")
ORDER = ("rloo_k4", "reinforce_baseline", "ppo_lam095", "raft", "dpo")
RARELY = 0.05  # a share of tokens
ENOUGH_RUNS = 6


@dataclass(frozen=True)
class Claim:
    """One row of the page."""

    published: str
    measured: str
    verdict: Verdict


def above(values: Sequence[float]) -> tuple[str, Verdict]:
    """The mean with its interval as text, and whether it is above 0; a handful of runs cannot tell."""
    low, high = interval(values)
    text = f"{np.mean(values):+.3f} [{low:+.3f}, {high:+.3f}]"
    if len(values) < ENOUGH_RUNS:
        return f"{text} ({len(values)} runs)", "cannot tell"
    return text, "confirmed" if low > 0 else "not confirmed" if high < 0 else "cannot tell"


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a claim with several parts: confirmed if all are, not confirmed if any is not."""
    if "not confirmed" in verdicts:
        return "not confirmed"
    return "confirmed" if set(verdicts) == {"confirmed"} else "cannot tell"


def better(results: Results, published: str, method: str, others: Sequence[str]) -> Claim:
    """`method` has a higher win-rate than each of `others`."""
    parts = [(other, *above(differences(results, method, other))) for other in others]
    measured = "; ".join(f"{method} less {other}: {text}" for other, text, _ in parts)
    return Claim(published, f"win-rate of {measured}", together([verdict for *_, verdict in parts]))


def rarely_clipped(results: Results) -> Claim:
    clipped = results.final.filter(pl.col("clipped").is_not_null() & pl.col("method").str.starts_with("ppo"))
    by_method = clipped.group_by("method", maintain_order=True).agg(pl.col("clipped").mean()).rows()
    measured = ", ".join(f"{method} {share:.1%}" for method, share in by_method)
    low, high = interval(clipped["clipped"].to_list())
    verdict: Verdict = "confirmed" if high < RARELY else "not confirmed" if low > RARELY else "cannot tell"
    return Claim("Clipping is hardly ever active (under 5 %)", f"share of clipped tokens: {measured}", verdict)


def most_of_the_gain(results: Results) -> Claim:
    """The share of the gain from K = 1 to K = 8 that K = 4 has, resampled over runs."""
    needed = ("reinforce_baseline", "rloo_k4", "rloo_k8")
    one, four, eight = (results.win_rates(method)["win_rate"].to_numpy() for method in needed)
    chosen = np.random.default_rng(SEED).integers(len(one), size=(RESAMPLES, len(one)))
    gain, part = (eight - one)[chosen].mean(axis=1), (four - one)[chosen].mean(axis=1)
    published = "K = 4 gives most of the gain over one sample per prompt"
    text = f"gain over reinforce_baseline: K = 4 {np.mean(four - one):+.3f}, K = 8 {np.mean(eight - one):+.3f}"
    tail = (1 - CONFIDENCE) / 2
    if len(one) < ENOUGH_RUNS or np.quantile(gain, tail) <= 0:
        return Claim(published, f"{text}; no clear gain of K = 8 to take a share of", "cannot tell")
    low, high = np.quantile(part / gain, [tail, 1 - tail])
    verdict: Verdict = "confirmed" if low > 0.5 else "not confirmed" if high < 0.5 else "cannot tell"
    return Claim(published, f"{text}; share {np.mean(part) / np.mean(gain):.2f} [{low:.2f}, {high:.2f}]", verdict)


def spreads(results: Results, method: str, over: str) -> list[float]:
    """Highest less lowest win-rate over a condition's values, one number for each of the other conditions."""
    others = [name for name in ("beta", "flips", "seed") if name != over]
    groups = results.win_rates(method).group_by(others, maintain_order=True)
    return groups.agg(pl.col("win_rate").max() - pl.col("win_rate").min())["win_rate"].to_list()


def losses(results: Results, method: str) -> list[float]:
    """Win-rate with the fewest flips less that with the most, by beta and seed."""
    groups = results.win_rates(method).sort("flips").group_by("beta", "seed", maintain_order=True)
    return groups.agg(pl.col("win_rate").first() - pl.col("win_rate").last())["win_rate"].to_list()


def more_robust(results: Results, published: str, what: str, of: Callable[[str], list[float]]) -> Claim:
    """RLOO changes less than RAFT does."""
    rloo, raft = of("rloo_k4"), of("raft")
    text, verdict = above([b - a for a, b in zip(rloo, raft, strict=True)])
    measured = f"{what}: rloo_k4 {np.mean(rloo):.3f}, raft {np.mean(raft):.3f}; difference {text}"
    return Claim(published, measured, verdict)


def less_memory(results: Results) -> Claim:
    costs = results.costs.group_by("method", maintain_order=True).agg(
        pl.col("models").max(), pl.col("weights_mb").mean(), pl.col("peak_memory_mb").mean()
    )
    told = {row["method"]: row for row in costs.to_dicts()}
    rloo, ppo = told["rloo_k4"], told["ppo_lam095"]
    measured = "; ".join(
        f"{row['method']}: {row['models']} models, {row['weights_mb']:.1f} MB of weights and optimizer state, "
        f"peak {row['peak_memory_mb']:.0f} MB"
        for row in (rloo, ppo)
    )
    lighter = rloo["models"] < ppo["models"] and rloo["weights_mb"] < ppo["weights_mb"]
    return Claim("RLOO needs less memory than PPO", measured, "confirmed" if lighter else "not confirmed")


def claims(results: Results) -> list[Claim]:
    """All claims on methods that the study has."""
    known = set(results.methods)
    return [make() for needed, make in _claims(results) if set(needed) <= known]


def _claims(results: Results) -> Iterator[tuple[Sequence[str], Callable[[], Claim]]]:
    def pair(text: str, method: str, *others: str) -> tuple[Sequence[str], Callable[[], Claim]]:
        return (method, *others), lambda: better(results, text, method, others)

    yield pair("A critic hurts: REINFORCE with a baseline does better than PPO", "reinforce_baseline", "ppo_lam095")
    unclipped = [f"{name}_unclipped" for name in OTHER_LAMBDAS]
    yield pair("Lambda = 1 is best: no bootstrapping from values", "ppo_lam1_unclipped", *unclipped)
    yield ("ppo_lam1", "ppo_lam095"), lambda: rarely_clipped(results)
    yield pair("PPO does no worse without clipping", "ppo_lam095_unclipped", "ppo_lam095")
    yield pair("A baseline helps REINFORCE", "reinforce_baseline", "reinforce")
    for first, second in pairwise(ORDER):
        yield pair(f"Order of methods: {first} before {second}", first, second)
    yield pair("More samples per prompt help: K = 4 before K = 2", "rloo_k4", "rloo_k2")
    yield ("reinforce_baseline", "rloo_k4", "rloo_k8"), lambda: most_of_the_gain(results)
    robust = ("rloo_k4", "raft")
    yield (
        robust,
        lambda: more_robust(
            results,
            "RLOO is more robust to beta than RAFT",
            "spread of the win-rate over beta",
            lambda method: spreads(results, method, "beta"),
        ),
    )
    yield (
        robust,
        lambda: more_robust(
            results,
            "RLOO is more robust to noise in the preferences than RAFT",
            "win-rate lost to flipped preferences",
            lambda method: losses(results, method),
        ),
    )
    yield ("rloo_k4", "ppo_lam095"), lambda: less_memory(results)
