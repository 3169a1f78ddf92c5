"""The commands `rloo rescore` and `rloo diff`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stages.common.params_file import load_params

Set = Annotated[str, typer.Argument(help="`scores`, the run's own, or a NAME of `rloo rescore`; or NAME@i0003")]


def rescore(
    name: Annotated[str, typer.Argument(help="of the new tables: data/rescored/NAME")],
    rewards: Annotated[
        list[str],
        typer.Option(
            help="a YAML file like score.rewards, or module:function or file.py:function, any number of times"
        ),
    ],
    iterations: Annotated[str, typer.Option(help="i0001,i0003 or i0001-i0006 or all")] = "all",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="replace tables of this NAME that were made with other rewards")
    ] = False,
) -> None:
    """Score existing rollouts with other rewards, without sampling, into new tables beside the old ones."""
    from pipeline.rescore import rescore as run

    run(Console(), name, rewards, iterations, load_params(), overwrite=overwrite)


def diff(
    a: Set,
    b: Set,
    iteration: Annotated[str | None, typer.Option(help="such as i0003; all that both have if not given")] = None,
    count: Annotated[int, typer.Option(help="how many of the rows with the largest change are shown", min=0)] = 10,
    out: Annotated[Path | None, typer.Option(help="file for all rows, .parquet or .csv")] = None,
) -> None:
    """Which rows changed score, advantage and sign from A to B, and why."""
    from pipeline.diff import diff as run

    run(Console(), a, b, iteration, count, out, load_params())
