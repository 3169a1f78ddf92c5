"""What has been published of these methods, beside what was measured here.

Claims are those of Ahmadian et al. 2024 (arXiv 2402.14740). One is confirmed where the whole interval of its contrast
lies above the bar, not confirmed where it lies below, and else the study cannot tell. A claim on a method that the
study does not have is left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import polars as pl

from pipeline.study.page.statistics import Estimate, Results, estimate

Verdict = Literal["confirmed", "not confirmed", "cannot tell"]
SMALLER_LAMBDAS = ("ppo_lam0_unclipped", "ppo_lam05_unclipped", "ppo_lam09_unclipped", "ppo_lam095_unclipped")
ORDER = ("rloo_k4", "reinforce_baseline", "ppo_lam095", "raft", "dpo")
RARELY = 0.05  # a share of tokens
NO_WORSE = 0.02  # of the win-rate


@dataclass(frozen=True)
class Claim:
    """One row of the page."""

    published: str
    measured: str
    verdict: Verdict


def above(found: Estimate, bar: float = 0.0) -> Verdict:
    """Whether the whole interval is above the bar."""
    return "confirmed" if found.low > bar else "not confirmed" if found.high < bar else "cannot tell"


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Of a claim with several parts: confirmed if all are, not confirmed if any is not."""
    if "not confirmed" in verdicts:
        return "not confirmed"
    return "confirmed" if set(verdicts) == {"confirmed"} else "cannot tell"


def difference(results: Results, method: str, other: str) -> Estimate:
    """Win-rate of `method` less that of `other`, paired by seed, condition and prompt."""
    return estimate(results.outcomes_by(method) - results.outcomes_by(other))


def better(results: Results, published: str, method: str, others: Sequence[str], bar: float = 0.0) -> Claim:
    """The win-rate of `method` less that of each of `others` is above the bar."""
    found = {other: difference(results, method, other) for other in others}
    measured = "; ".join(f"{method} less {other}: {one}" for other, one in found.items())
    return Claim(published, f"win-rate of {measured}", together([above(one, bar) for one in found.values()]))


def rarely_clipped(results: Results) -> Claim:
    """Each seed's mean over the methods that clip and their conditions."""
    clipped = results.final.filter(pl.col("clipped").is_not_null() & pl.col("method").str.starts_with("ppo"))
    by_method = clipped.group_by("method", maintain_order=True).agg(pl.col("clipped").mean()).rows()
    measured = ", ".join(f"{method} {share:.1%}" for method, share in by_method)
    by_seed = clipped.group_by("seed").agg(pl.col("clipped").mean()).sort("seed")["clipped"].to_numpy()
    found = estimate(RARELY - by_seed[:, None])
    text = f"share of clipped tokens in the steps that can clip, the second of an iteration: {measured}"
    return Claim("Clipping is hardly ever active (under 5 %)", text, above(found))


def most_of_the_gain(results: Results) -> Claim:
    """K = 4 has more than half of what K = 8 has over one sample per prompt."""
    one_SP, four_SP, eight_SP = map(results.outcomes_by, ("reinforce_baseline", "rloo_k4", "rloo_k8"))
    four, eight = estimate(four_SP - one_SP), estimate(eight_SP - one_SP)
    more_than_half = estimate((four_SP - one_SP) - 0.5 * (eight_SP - one_SP))
    published = "K = 4 gives most of the gain over one sample per prompt"
    measured = f"gain over reinforce_baseline: K = 4 {four}, K = 8 {eight}; K = 4 less half of K = 8 {more_than_half}"
    return Claim(published, measured, "cannot tell" if eight.low <= 0 else above(more_than_half))


def spreads(results: Results, method: str) -> np.ndarray:
    """Highest less lowest win-rate over beta, of each seed [S, 1]."""
    by_beta = results.final.filter(method=method).group_by("seed", "beta").agg(pl.col("win_rate").mean())
    spreads = by_beta.group_by("seed").agg(pl.col("win_rate").max() - pl.col("win_rate").min()).sort("seed")
    return spreads["win_rate"].to_numpy()[:, None]


def losses(results: Results, method: str) -> np.ndarray:
    """Outcome with the fewest flips less that with the most [S, P]."""
    names = sorted(results.noise, key=lambda name: results.noise[name])
    clean_SP, noisy_SP = (results.outcomes_by(method, flips=name) for name in (names[0], names[-1]))
    lost_SP: np.ndarray = clean_SP - noisy_SP
    return lost_SP


def more_robust(published: str, what: str, rloo: np.ndarray, raft: np.ndarray) -> Claim:
    """RLOO changes less than RAFT does."""
    found = estimate(raft - rloo)
    measured = f"{what}: rloo_k4 {rloo.mean():.3f}, raft {raft.mean():.3f}; raft less rloo_k4 {found}"
    return Claim(published, measured, above(found))


def less_memory(results: Results) -> Claim:
    """By count; the peak of a small model's process is that of its libraries."""
    costs = results.costs.group_by("method", maintain_order=True).agg(
        pl.col("models").max(), pl.col("state_mb", "peak_memory_mb").mean()
    )
    rows = {row["method"]: row for row in costs.to_dicts()}
    rloo, ppo = rows["rloo_k4"], rows["ppo_lam095"]
    measured = "; ".join(
        f"{row['method']}: {row['models']} models, {row['state_mb']:.1f} MB of weights and optimizer state by count, "
        f"measured peak {row['peak_memory_mb']:.0f} MB"
        for row in (rloo, ppo)
    )
    lighter = rloo["models"] < ppo["models"] and rloo["state_mb"] < ppo["state_mb"]
    return Claim("RLOO holds less in memory than PPO", measured, "confirmed" if lighter else "not confirmed")


def claims(results: Results) -> list[Claim]:
    """All claims on methods that the study has."""
    known = set(results.methods)
    return [make() for needed, make in _claims(results) if set(needed) <= known]


Made = tuple[Sequence[str], Callable[[], Claim]]


def _claims(results: Results) -> Iterator[Made]:
    """Each with the methods that it is about."""

    def pair(text: str, method: str, *others: str, bar: float = 0.0) -> Made:
        return (method, *others), lambda: better(results, text, method, others, bar)

    yield pair("A critic hurts: REINFORCE with a baseline does better than PPO", "reinforce_baseline", "ppo_lam095")
    yield pair("Lambda = 1 is best (of PPO without clipping)", "ppo_lam1_unclipped", *SMALLER_LAMBDAS)
    yield ("ppo_lam1", "ppo_lam095"), lambda: rarely_clipped(results)
    no_worse = f"PPO does no worse without clipping (by more than {NO_WORSE})"
    yield pair(no_worse, "ppo_lam095_unclipped", "ppo_lam095", bar=-NO_WORSE)
    yield pair("A baseline helps REINFORCE", "reinforce_baseline", "reinforce")
    for first, second in pairwise(ORDER):
        yield pair(f"Order of methods: {first} before {second}", first, second)
    yield pair("More samples per prompt help: K = 4 before K = 2", "rloo_k4", "rloo_k2")
    yield ("reinforce_baseline", "rloo_k4", "rloo_k8"), lambda: most_of_the_gain(results)
    yield from _robustness(results)
    yield ("rloo_k4", "ppo_lam095"), lambda: less_memory(results)


def _robustness(results: Results) -> Iterator[Made]:
    """Where the study has more than one beta, or share of flips."""
    both = ("rloo_k4", "raft")
    betas, flips = (results.final[column].n_unique() > 1 for column in ("beta", "flips"))
    if betas:
        published = "RLOO is more robust to beta than RAFT"
        what = "spread of the win-rate over beta"
        yield both, lambda: more_robust(published, what, *(spreads(results, method) for method in both))
    if flips:
        noisy = "RLOO is more robust to noise in the preferences than RAFT"
        lost = "win-rate lost to flipped preferences"
        yield both, lambda: more_robust(noisy, lost, *(losses(results, method) for method in both))
