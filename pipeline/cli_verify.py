"""The command `rloo verify`."""

from typing import Annotated

import typer
from rich.console import Console


def verify(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="such as i0003 or model; all, if not given")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="remove what is damaged, so that it is restored or made again")
    ] = False,
) -> None:
    """Read all files of the run and of DVC's cache, and say which are not what their stages wrote."""
    from pipeline.verify.run import verify as run

    if not run(Console(), names or [], repair=repair):
        raise typer.Exit(1)
