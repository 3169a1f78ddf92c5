"""`rloo windows`: the windows of a long run."""

from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(invoke_without_command=True, help="List the windows of a long run; open and compare them.")

Window = Annotated[str, typer.Argument(help="such as w0003, or an iteration of it, such as i0047")]
Side = Annotated[str, typer.Argument(help="such as w0003, or w0003@HEAD~1: as it was at a revision of git")]


@app.callback()
def windows(context: typer.Context) -> None:
    """List them: state, rewards, seconds, size."""
    if context.invoked_subcommand is None:
        from pipeline.windows.listing import show

        show(Console())


@app.command("open")
def open_(window: Window) -> None:
    """Open a window: its plan and its lock become those of the project, its files are put into place."""
    from pipeline.door import check_project
    from pipeline.run_lock import run_lock
    from pipeline.windows.layout import find
    from pipeline.windows.walk import open_window, shortened

    check_project()
    with run_lock("rloo windows open"):
        target = find(window)
        gone = open_window(target)
    print(f"{target.window} is open: {target.names[0]} to {target.last}")
    if gone:
        print(
            f"{len(gone)} of its files and folders are not in DVC's cache ({shortened(gone)}): `rloo pull` fetches "
            "what a remote has, `dvc repro` or `rloo train` makes the rest again"
        )


@app.command()
def compare(a: Side, b: Side) -> None:
    """Which outputs of two windows are the same bytes, and their metrics side by side."""
    from pipeline.windows.compare import compare as run

    run(Console(), a, b)
