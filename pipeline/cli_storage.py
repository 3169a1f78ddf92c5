"""`rloo storage`, `rloo push` and `rloo pull`: what takes how much, what may go, and other machines."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="What of a run takes how much, and what may go.", invoke_without_command=True)

Remote = Annotated[str | None, typer.Option("--remote", "-r", help="a remote of DVC; the default one if not given")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="files at once; DVC's number if not given")]


@app.callback()
def storage(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON: sizes in bytes")] = False,
) -> None:
    """Show what takes how much, window by window, and what pruning would free."""
    if context.invoked_subcommand is not None:
        return
    from dvc.repo import Repo

    from pipeline.door import check_project
    from pipeline.storage import page
    from pipeline.storage.objects import cache_of
    from pipeline.storage.prune import prune as plan
    from pipeline.storage.usage import usage
    from pipeline.storage.windows import read_windows
    from stages.common.params_file import load_params

    check_project()
    options = load_params().storage
    with Repo() as repo:
        found = usage(cache_of(repo), read_windows())
    pruning = plan(options, dry_run=True)
    if as_json:
        would = {"iterations": pruning.goes, "bytes": pruning.freed, "kept": pruning.kept, "held": pruning.held}
        print(json.dumps({**asdict(found), "prune": would}, indent=2))
        return
    console = Console()
    page.show_usage(console, found)
    page.show_pruning(console, pruning, keeps=options.keep_last is not None, done=False)


@app.command()
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
) -> None:
    """Remove checkpoints of finished windows, but for those that `storage` in params.yaml says to keep."""
    from pipeline.door import check_project
    from pipeline.run_lock import run_lock
    from pipeline.storage import page
    from pipeline.storage.prune import prune as run
    from stages.common.params_file import load_params

    check_project()
    options = load_params().storage
    with run_lock("rloo storage prune"):
        found = run(options, dry_run=dry_run)
    page.show_pruning(Console(), found, keeps=options.keep_last is not None, done=not dry_run)


def push(remote: Remote = None, jobs: Jobs = None) -> None:
    """Push all windows and the run cache to a remote of DVC."""
    from pipeline.door import check_project
    from pipeline.storage.push import push as run

    check_project()
    run(Console(), remote, jobs)


def pull(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="windows and iterations, such as w0001 or i0007; all that is kept if not given"),
    ] = None,
    remote: Remote = None,
    jobs: Jobs = None,
) -> None:
    """Pull from a remote of DVC, into the cache and into data/."""
    from pipeline.door import check_project
    from pipeline.storage.pull import pull as run

    check_project()
    run(Console(), names or [], remote, jobs)
