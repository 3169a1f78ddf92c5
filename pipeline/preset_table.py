"""The presets side by side: a table for the terminal, and the same as Markdown for docs/presets.md."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pipeline.presets import Preset
from pipeline.yaml_text import Key, flow

TITLES = ("preset", "estimator", "objective and clip", "reduction", "KL", "steps", "beside", "paper")
SHOWN = {"estimator", "objective", "reduction", "epochs", "minibatches"}  # last parts of keys with a column
BESIDE = {  # how the last column calls what differs from base
    ("rollout", "greedy"): "greedy completions",
    ("rollout", "dynamic_sampling"): "dynamic sampling",
    ("score", "rewards", "overlong"): "soft overlong penalty",
    ("advantage", "normalise"): "batch normalisation",
    ("advantage", "clip"): "advantages clipped",
    ("critic",): "critic",
}
OPTIONS = {
    "moving_average": "form",
    "grpo": "std",
    "reinforce_pp": "baseline",
    "gae": "lam",
}  # the one that says most of each


def _estimator(of: dict[Key, Any]) -> str:
    name = of["advantage", "estimator"]
    return f"{name} {of['advantage', name, OPTIONS[name]]}" if name in OPTIONS else str(name)


def _objective(of: dict[Key, Any]) -> str:
    name = of["update", "objective"]
    option = {key[-1]: value for key, value in of.items() if key[:2] == ("update", name)}
    if name == "sapo":
        return f"sapo {option['temperature_positive']:g}/{option['temperature_negative']:g}"
    if name == "reinforce":
        return "reinforce"
    clip = "/".join(map(_bound, (option["clip_low"], option["clip_high"])))
    return " ".join([name, *([option["ratio"]] if name == "ppo" else []), clip])


def _bound(clip: float | None) -> str:
    if clip is None:
        return "-"
    return f"{clip:g}" if clip >= 1e-3 else f"{clip:.0e}".replace("e-0", "e-")


def _kl(of: dict[Key, Any]) -> str:
    beta, place, estimator = (of["score", "kl", name] for name in ("beta", "placement", "estimator"))
    return f"{beta:g} {estimator} {place}" if beta else "none"


def _beside(preset: Preset) -> str:
    """What the preset sets beyond the other columns."""
    columns = {("advantage", "estimator"), ("advantage", "outcome_reward"), *(("update", name) for name in SHOWN)}
    sections = {("score", "kl"), ("update", preset.settings["update", "objective"])}
    sections |= {("advantage", preset.settings["advantage", "estimator"])}
    rest = [key for key in preset.settings if key in preset.own - columns and key[:2] not in sections]
    return ", ".join(BESIDE.get(key, f"{'.'.join(key)} {flow(preset.settings[key])}") for key in rest)


def row(preset: Preset) -> tuple[str, ...]:
    """One cell for each of the titles."""
    of = preset.settings
    steps = f"{of['update', 'epochs']} x {of['update', 'minibatches']}"
    reduction = str(of["update", "reduction"])
    return preset.name, _estimator(of), _objective(of), reduction, _kl(of), steps, _beside(preset), preset.paper


def show(console: Console, presets: dict[str, Preset]) -> None:
    """For the terminal: paper and what is beside below the name, each column as narrow as its longest word."""
    shown = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    shown.add_column("preset")
    rows = [row(preset) for preset in presets.values()]
    columns = list(zip(*rows, strict=True))
    for title, column in zip(TITLES[1:5], columns[1:5], strict=True):
        shown.add_column(title.split()[0], width=max(len(word) for cell in column for word in cell.split()))
    shown.add_column("exm")
    for name, *cells, steps, beside, paper in rows:
        below = "\n".join(filter(None, (paper, *beside.split(", "))))
        shown.add_row(f"[bold]{name}[/bold]\n[dim]{below}[/dim]", *cells, steps.replace(" ", ""))
    console.print(shown)
    console.print("exm: epochs x minibatches. `rloo preset NAME` writes one to params.yaml.", highlight=False)


def markdown(presets: dict[str, Preset]) -> str:
    """For docs/presets.md: names as code, arXiv numbers as links."""
    lines: list[tuple[str, ...]] = [TITLES, ("---",) * len(TITLES)]
    for name, *cells, paper in map(row, presets.values()):
        link = f"[{paper}](https://arxiv.org/abs/{paper})" if paper[0].isdigit() else paper
        lines.append((f"`{name}`", *cells, link))
    return "".join("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|\n" for cells in lines)
