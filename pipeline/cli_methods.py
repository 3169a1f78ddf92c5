"""Commands about methods: what each of them is, on paper, in params.yaml and in a study."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pipeline.run_lock import run_lock
from stages.common.errors import StageError


def variance(
    out: Annotated[Path, typer.Option(help="file to write, .csv or .parquet")] = Path("data/variance.csv"),
    beta: Annotated[float, typer.Option(help="weight of the KL inside the score", min=0.0)] = 0.04,
) -> None:
    """Exact bias and variance of every estimator, on a policy small enough to enumerate; needs no run."""
    from pipeline.variance import variance as run

    run(Console(), out, beta)


def study(
    name: Annotated[str | None, typer.Argument(help="a folder of pipeline/studies; without it, their names")] = None,
) -> None:
    """Compare many methods on many seeds, from one fine-tuned model and one reward model, and write a page on it."""
    from pipeline.study.runs.settings import names

    if name is None:
        print("\n".join(names()))
        return
    from pipeline.study.flow import run_study

    run_study(Console(), name)


def recipe(
    name: Annotated[str | None, typer.Argument(help="rlvr or rlhf; without it, what they are")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would change")] = False,
) -> None:
    """Set params.yaml to a whole run: where the policy starts, and what it is rewarded for."""
    from pipeline import recipes

    if name:
        with run_lock("rloo recipe"):
            recipes.change(Console(), name, dry_run=dry_run)
    elif dry_run:
        raise StageError("--dry-run: of which recipe? `rloo recipe` lists them")
    else:
        recipes.show(Console())


def preset(
    name: Annotated[str | None, typer.Argument(help="the method; without it, the table of all of them")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would change")] = False,
) -> None:
    """Set params.yaml to a named method, and leave what is not part of a method as it is."""
    from pipeline import preset_table, presets

    if name:
        with run_lock("rloo preset"):
            presets.change(Console(), name, dry_run=dry_run)
    elif dry_run:
        raise StageError("--dry-run: of which preset? `rloo preset` lists them")
    else:
        preset_table.show(Console(), presets.read_presets())
