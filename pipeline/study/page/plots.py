"""The plots of a study's page, as SVG files whose bytes depend on nothing but the numbers."""

from pathlib import Path

import matplotlib as mpl
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.study.page.statistics import Results
from pipeline.study.runs.settings import Run, Study
from stages.common.params import Params

mpl.rcParams["svg.hashsalt"] = "rloo"
mpl.rcParams["font.size"] = 9
COLOURS = {"ppo": "#c0504d", "reinforce": "#4f81bd", "rloo": "#2e7d32", "other": "#8064a2", "offline": "#7f7f7f"}


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def axes(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    made = figure.subplots(1, columns, squeeze=False)[0]
    for one in made:
        one.spines[["top", "right"]].set_visible(False)
    return figure, list(made)


def win_rates(study: Study, table: pl.DataFrame, path: Path) -> None:
    """A bar per method, best first, with its interval over prompts."""
    ordered = table.sort("win_rate")
    figure, (ax,) = axes(7, 0.28 * ordered.height + 0.8)
    errors = [ordered["win_rate"] - ordered["win_rate_low"], ordered["win_rate_high"] - ordered["win_rate"]]
    colours = [COLOURS[study.methods[method].family] for method in ordered["method"]]
    ax.barh(ordered["method"], ordered["win_rate"], xerr=[e.to_list() for e in errors], color=colours, height=0.7)
    ax.axvline(0.5, color="black", linewidth=0.8)
    ax.set_xlabel("win-rate against the fine-tuned model, by gold")
    save(figure, path)


def over_optimisation(results: Results, path: Path) -> None:
    """Proxy and gold score by KL at the smallest beta, where policies go furthest: a line per method, the mean over its
    runs at each evaluation.
    """
    figure, (left, right) = axes(9.5, 3.6, 2)
    beta = min(results.curves["beta"].to_list())
    columns = [pl.col(name).mean() for name in ("kl", "proxy", "gold")]
    groups = results.curves.filter(beta=beta).group_by("method", "final", "iteration", maintain_order=True)
    points = groups.agg(columns).sort("final", "iteration", maintain_order=True)
    for method in [name for name in results.methods if not name.endswith("_unclipped")]:
        line = points.filter(method=method)
        style = "--" if method.startswith("ppo") else "-"
        for ax, column in ((left, "proxy"), (right, "gold")):
            ax.plot(line["kl"], line[column], linestyle=style, linewidth=1, marker=".", label=method)
    for ax, title in ((left, "score by the reward model"), (right, "gold score")):
        ax.set_title(f"{title}, beta {beta}")
        ax.set_xlabel("KL to the reference, nats per sequence")
    right.legend(frameon=False, fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, path)


def by_option(study: Study, table: pl.DataFrame, path: Path) -> None:
    """Win-rate by lambda of PPO, with and without clipping, and by K of RLOO."""
    figure, (left, right) = axes(8, 3, 2)
    ppo, rloo = (_points(study, table, family) for family in ("ppo", "rloo"))
    for objective, label in (("ppo", "clipped"), ("reinforce", "not clipped")):
        chosen = [(p.advantage.gae.lam, row) for p, row in ppo if p.update.objective == objective]
        _line(left, [(lam, row) for lam, row in chosen if lam is not None], label)
    _line(right, [(float(p.rollout.samples_per_prompt), row) for p, row in rloo], "RLOO")
    left.set_xlabel("lambda of PPO")
    left.legend(frameon=False)
    right.set_xlabel("K of RLOO")
    left.set_ylabel("win-rate")
    save(figure, path)


def _points(study: Study, table: pl.DataFrame, family: str) -> list[tuple[Params, dict[str, float]]]:
    settings = study.settings
    first = (settings.betas[0], next(iter(settings.flips)), settings.seeds[0])
    rows = [row for row in table.to_dicts() if study.methods[row["method"]].family == family]
    return [(study.params_of(Run(row["method"], *first)), row) for row in rows]


def _line(ax: Axes, points: list[tuple[float, dict[str, float]]], label: str) -> None:
    ordered = sorted(points, key=lambda point: point[0])
    rates = [row["win_rate"] for _, row in ordered]
    down = [row["win_rate"] - row["win_rate_low"] for _, row in ordered]
    up = [row["win_rate_high"] - row["win_rate"] for _, row in ordered]
    ax.errorbar([x for x, _ in ordered], rates, yerr=[down, up], marker="o", capsize=2, label=label)


def robustness(results: Results, by_condition: pl.DataFrame, path: Path) -> None:
    """Win-rate by beta, a panel for each share of flips, a line per method that is not PPO."""
    flips = by_condition["flips"].unique().sort().to_list()
    figure, panels = axes(4.2 * len(flips), 3.4, len(flips))
    shown = [method for method in results.methods if not method.startswith("ppo")]
    for ax, value in zip(panels, flips, strict=True):
        for method in shown:
            line = by_condition.filter(method=method, flips=value).sort("beta")
            ax.plot(line["beta"], line["win_rate"], marker=".", label=method)
        ax.set_title(f"flips: {value}")
        ax.set_xlabel("beta")
    lowest, highest = (by_condition.filter(pl.col("method").is_in(shown))["win_rate"].quantile(q) for q in (0, 1))
    for ax in panels:
        ax.set_ylim((lowest or 0.0) - 0.02, (highest or 1.0) + 0.02)
    panels[0].set_ylabel("win-rate")
    panels[-1].legend(frameon=False, fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(figure, path)
