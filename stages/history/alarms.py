"""Alarms: which iterations of a history show signs of a run that goes wrong, and what the signs are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stages.common.params import Alarms

Row = dict[str, Any]  # of the history
JUDGE = "judge"


@dataclass(frozen=True)
class Alarm:
    """`name` as in `alarms.stop`; `text` says what was measured and where the threshold is."""

    name: str
    text: str


def alarms_of(rows: Sequence[Row], options: Alarms) -> list[Alarm]:
    """Alarms of the last of the rows, which go back to the first iteration; the initial policy raises none."""
    row, first = rows[-1], next((r for r in rows if r["iteration"] > 0), None)
    if first is None or row["iteration"] == 0:
        return []
    found = [
        _below("entropy", row.get("entropy"), options.entropy_below, "nats of entropy per token"),
        _above("kl", row.get("kl"), options.kl_above, "nats of KL per sequence"),
        _length(row, first, options),
        _at_least("constant_reward", row.get("frac_reward_zero_std"), options.constant_reward_share),
        _above("not_centred", row.get("mean_advantage"), options.mean_advantage_above, "mean advantage, absolute"),
        _proxy_against_gold(rows, options),
    ]
    return [alarm for alarm in found if alarm is not None]


def _below(name: str, value: float | None, threshold: float | None, what: str) -> Alarm | None:
    if value is None or threshold is None or value >= threshold:
        return None
    return Alarm(name, f"{value:.3g} {what}, below {threshold:g}")


def _above(name: str, value: float | None, threshold: float | None, what: str) -> Alarm | None:
    if value is None or threshold is None or abs(value) <= threshold:
        return None
    return Alarm(name, f"{abs(value):.3g} {what}, above {threshold:g}")


def _at_least(name: str, value: float | None, threshold: float | None) -> Alarm | None:
    if value is None or threshold is None or value < threshold:
        return None
    return Alarm(name, f"{value:.0%} of the groups have one reward only, the threshold is {threshold:.0%}")


def _length(row: Row, first: Row, options: Alarms) -> Alarm | None:
    key, factor = "completions/mean_length", options.length_factor
    if factor is None or not first.get(key):
        return None
    ratio = row[key] / first[key]
    if 1 / factor <= ratio <= factor:
        return None
    beyond = f"above {factor:g}" if ratio > factor else f"below 1/{factor:g}"
    times = f"{ratio:.2f} times the first iteration's {first[key]:.1f}"
    return Alarm("length", f"{row[key]:.1f} tokens on average, {times}, {beyond}")


def _proxy_against_gold(rows: Sequence[Row], options: Alarms) -> Alarm | None:
    """Compares the last row, if it was evaluated, with the evaluation before."""
    if options.proxy is None or options.gold is None:
        return None
    proxy, gold = (_column(name) for name in (options.proxy, options.gold))
    known = [row for row in rows if row.get(proxy) is not None and row.get(gold) is not None]
    if len(known) < 2 or known[-1] is not rows[-1]:
        return None
    rose, fell = known[-1][proxy] - known[-2][proxy], known[-2][gold] - known[-1][gold]
    if rose <= 0 or fell <= options.gold_falls_by:
        return None
    since = f"since iteration {known[-2]['iteration']}"
    beyond = f"{options.gold} fell by {fell:.3g}, more than {options.gold_falls_by:g}"
    return Alarm("proxy_against_gold", f"{since} {options.proxy} rose by {rose:.3g}, {beyond}")


def _column(name: str) -> str:
    return "judge/win_rate" if name == JUDGE else f"eval/rewards/{name}/mean"
