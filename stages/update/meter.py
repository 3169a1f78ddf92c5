"""The numbers that describe an optimizer step: averages over the tokens that it computed.

Dimension suffixes: T completion tokens of a micro-batch.
"""

from typing import Any

from torch import Tensor

from stages.update.tokens import Terms, Tokens

MEANS = (
    "approx_kl",
    "ratio_mean",
    "clip_low",
    "clip_high",
    "clip_dual",
    "importance_mean",
    "importance_outside",
    "entropy",
)


class Meter:
    """Sums over micro-batches."""

    def __init__(self) -> None:
        self.tokens = 0
        self._sums: dict[str, float] = {}
        self._ratio_range = (float("inf"), float("-inf"))

    def state(self) -> dict[str, Any]:
        """As JSON, for `restore`."""
        return {"tokens": self.tokens, "sums": dict(self._sums), "ratio_range": list(self._ratio_range)}

    def restore(self, state: dict[str, Any]) -> None:
        self.tokens, self._sums = state["tokens"], dict(state["sums"])
        low, high = state["ratio_range"]
        self._ratio_range = low, high

    def add(self, tokens: Tokens, terms: Terms, sampler_T: Tensor, entropy_T: Tensor) -> None:
        """`approx_kl` is k3 of policy and sampler, by token; the ratio is the one that the objective looks at."""
        self.tokens += len(sampler_T)
        drift_T = (tokens.logp_T.detach() - sampler_T).double()
        self._sum("approx_kl", drift_T.exp() - 1 - drift_T)
        self._sum("ratio_mean", terms.ratio_T)
        self._sum("entropy", entropy_T)
        self._sum("clip_low", terms.clipped_low_T)
        self._sum("clip_high", terms.clipped_high_T)
        self._sum("clip_dual", terms.clipped_dual_T)
        low, high = self._ratio_range
        self._ratio_range = min(low, float(terms.ratio_T.min())), max(high, float(terms.ratio_T.max()))

    def add_importance(self, weight_T: Tensor, outside_T: Tensor) -> None:
        self._sum("importance_mean", weight_T)
        self._sum("importance_outside", outside_T)

    def _sum(self, name: str, value_T: Tensor | None) -> None:
        if value_T is not None:
            self._sums[name] = self._sums.get(name, 0.0) + float(value_T.detach().double().sum())

    def columns(self) -> dict[str, float | None]:
        """Columns of the steps table; null where nothing was measured."""
        if not self.tokens:
            return dict.fromkeys((*MEANS, "ratio_min", "ratio_max"))
        low, high = self._ratio_range
        means = {name: self._sums[name] / self.tokens if name in self._sums else None for name in MEANS}
        return means | {"ratio_min": low, "ratio_max": high}
