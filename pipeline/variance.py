"""`rloo variance`: bias and variance of every estimator, exact, as a table for people and as a file."""

import math
from pathlib import Path

import polars as pl
from rich import box
from rich.console import Console
from rich.table import Table

from stages.common.errors import StageError
from stages.common.files import publish
from stages.enumeration.study import study

ROUNDING = 1e-12  # below it a figure is 0 but for rounding
COLUMNS = {
    "variance_ratio": "Var[A]/σ²",
    "relative_bias": "bias",
    "factor_along_gradient": "along g",
    "cosine": "cosine",
    "gradient_variance": "variance",
    "variance_to_rloo": "to rloo",
    "signal_to_noise": "SNR",
}
CAPTION = """\
One prompt, a policy with nine possible answers: all groups of K answers are
enumerated, nothing is sampled. g is the gradient of E[r] - beta KL,
ĝ = (1/K) Σ A ∇log π its estimate from one group.
  Var[A]/σ²  variance of one answer's advantage over that of its score
  bias       ‖E[ĝ] - g‖ / ‖g‖; 0 is exact
  along g    ⟨E[ĝ], g⟩ / ‖g‖²: above 1 a step too long, below 1 too short
  cosine     of E[ĝ] with g; 1 is the right direction
  variance   trace of the covariance of ĝ
  to rloo    that, over that of rloo at the same K
  SNR        ‖E[ĝ]‖² / variance: does not depend on the scale of advantages
The batch is one group here: so batch_mean is dr_grpo and, left out, rloo, and
reinforce_pp is grpo (population). moving_average is at its limit, the expected
score; "optimal constant" is the constant baseline of least variance. Another
policy or reward keeps the zeros of bias, but may rank the variances otherwise."""


def check(path: Path, beta: float) -> None:
    """Refuse a file name that says no format, and a weight that is no number."""
    if path.suffix not in (".csv", ".parquet"):
        raise StageError(f"--out {path}: the name must end in .csv or .parquet")
    if not math.isfinite(beta):
        raise StageError(f"--beta {beta}: must be finite")


def write(frame: pl.DataFrame, path: Path) -> None:
    """Publish the study in the format that the suffix names; its folder is made if missing."""
    try:
        with publish(path) as scratch:
            frame.write_csv(scratch) if path.suffix == ".csv" else frame.write_parquet(scratch)
    except OSError as error:
        raise StageError(f"--out {path} cannot be written: {error}") from None


def _text(column: str, value: float) -> str:
    if abs(value) < ROUNDING:
        return "0"
    return f"{value:z.4f}" if column == "cosine" else f"{value:z.3f}"


def table(frame: pl.DataFrame) -> Table:
    """The figures that matter most, one section per group size."""
    shown = Table(title="Bias and variance of the gradient estimate, by enumeration", box=box.SIMPLE_HEAD, padding=0)
    shown.add_column("K", justify="right")
    shown.add_column("estimator", no_wrap=True)
    for title in COLUMNS.values():
        shown.add_column(title, justify="right", no_wrap=True)
    for k in frame["k"].unique(maintain_order=True):
        for row in frame.filter(pl.col("k") == k).to_dicts():
            shown.add_row(str(k), row["estimator"], *(_text(column, row[column]) for column in COLUMNS))
        shown.add_section()
    return shown


def variance(console: Console, out: Path, beta: float) -> None:
    """Compute, write, and show."""
    check(out, beta)
    frame = study(beta)
    write(frame, out)
    console.print(table(frame))
    console.print(CAPTION, markup=False, highlight=False)
    console.print(f"beta {beta:g}, σ² {frame['score_variance'][0]:z.4f}. {out}: all figures", markup=False)
