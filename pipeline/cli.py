"""The command `rloo`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from pipeline import cli_methods, cli_rescore, cli_show, cli_storage, cli_verify, cli_windows
from pipeline.cli_show import Policy
from pipeline.plan import read_plan, stored_options
from pipeline.run_lock import run_lock
from stages.common.errors import StageError
from stages.common.params_file import load_params

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="REINFORCE Leave-One-Out, as a DAG.",
)


@app.command()
def plan(
    iterations: Annotated[int, typer.Argument(help="iterations in all, those already done included")],
    evaluate_every: Annotated[
        int | None, typer.Option(help="evaluate every n-th iteration (kept if not given)")
    ] = None,
    window: Annotated[
        int | None, typer.Option(help="iterations of a window that is not begun yet (kept if not given)")
    ] = None,
) -> None:
    """Write the plan that `dvc repro` and `rloo train` follow."""
    from pipeline.windows.extend import describe, last_begun, readable, set_run

    with run_lock("rloo plan"):
        every, size = stored_options()
        before = readable()
        done = last_begun(before) if before else 0
        made = set_run(
            iterations, every if evaluate_every is None else evaluate_every, size if window is None else window
        )
    print(describe(made, done))


@app.command()
def train(
    iterations: Annotated[int | None, typer.Option(help="iterations in all; the plan's number if not given")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="if another run is at work here, wait for its end")] = False,
) -> None:
    """Bring all stages of the plan up to date, as a Prefect flow, and show what came out."""
    params = load_params()
    from pipeline.flows.reporting import reporting

    with run_lock("rloo train", wait), reporting() as api:
        from stages.score.calling.resident import close_all
        from stages.score.rewards import check_functions

        check_functions(params)
        close_all()  # what the functions imported is held by the worker from now on, and not by this process too
        from pipeline.train import train as run

        done = run(iterations, api)
    console = Console()
    from pipeline import show

    show.history(console)
    show.comparison(console, "i0000", done.last)
    show.offline(console, done.last)
    console.print("Files:")
    show.files(console, done)


@app.command()
def serve(
    name: Annotated[str | None, typer.Option(help="of the deployment; the folder's name if not given")] = None,
    cron: Annotated[str | None, typer.Option(help='schedule, such as "0 2 * * *"')] = None,
    interval: Annotated[float | None, typer.Option(min=1, help="schedule: seconds from one run to the next")] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="of scheduled runs; the plan's if not given")] = None,
) -> None:
    """Serve the training flow of this workspace as a Prefect deployment: run, schedule and cancel it in the UI."""
    from pipeline.flows.serve import serve as run

    run(name, cron, interval, read_plan().iterations if iterations is None else iterations)


@app.command()
def heal() -> None:
    """Put DVC's own files right after a crash of `dvc repro`; `rloo train` does so by itself."""
    from pipeline.heal import tell_healed

    with run_lock("rloo heal"):
        tell_healed("nothing to put right")


@app.command()
def check(
    prompts: Annotated[int, typer.Option(min=1, help="prompts of the dry run")] = 2,
    keep: Annotated[bool, typer.Option("--keep", help="keep the dry run's files, in data/check")] = False,
    out: Annotated[Path | None, typer.Option(help="write the page to this file, too; .md for Markdown")] = None,
) -> None:
    """Check model, prompts, rewards and loss on a few prompts, and estimate how long the run takes."""
    from pipeline.check.run import check as run

    if not run(Console(), prompts, keep=keep, out=out):
        raise typer.Exit(1)


@app.command()
def compare(
    iteration: Annotated[str | None, typer.Argument(help="such as i0003; the last of the plan if not given")] = None,
    estimators: Annotated[str, typer.Option(help="names, separated by commas")] = "rloo,reinforce,grpo,dr_grpo,raft",
    gradients: Annotated[bool, typer.Option(help="compute the cosines between their gradients, too")] = True,
    out: Annotated[Path | None, typer.Option(help="Parquet file; data/compare/ITERATION.parquet if not given")] = None,
) -> None:
    """Advantages by several estimators on the same scores, and the cosines of the gradients they imply."""
    from pipeline.compare import compare as run

    names = [name.strip() for name in estimators.split(",") if name.strip()]
    run(Console(), iteration or read_plan().last, names, load_params(), gradients=gradients, out=out)


@app.command()
def export(policy: Policy, folder: Annotated[Path, typer.Argument(help="new folder to write")]) -> None:
    """Write a policy as one ordinary model folder, any adapter merged into the base."""
    from pipeline.export import export as write

    write(policy, folder)
    print(f"{folder}: loads with AutoModelForCausalLM.from_pretrained({str(folder)!r})")


app.add_typer(cli_show.app, name="show")
app.add_typer(cli_windows.app, name="windows")
app.command()(cli_rescore.rescore)
app.command()(cli_rescore.diff)
app.command()(cli_verify.verify)
app.command()(cli_methods.variance)
app.command()(cli_methods.study)
app.command()(cli_methods.recipe)
app.command()(cli_methods.preset)
app.add_typer(cli_storage.app, name="storage")
app.command()(cli_storage.push)
app.command()(cli_storage.pull)


def main(arguments: Any = None) -> None:
    """Run the command line; errors that a user can mend are printed without a traceback."""
    try:
        app(arguments)
    except StageError as error:
        print(f"rloo: {error}", file=sys.stderr)
        sys.exit(getattr(error, "status", 1))
    except ImportError as error:
        print(f"rloo: {type(error).__name__}: {error}; `make setup` installs what is missing", file=sys.stderr)
        sys.exit(1)
    except BaseException as error:
        stopping = sys.modules.get("pipeline.flows.stopping")  # not there where no flow was to run
        if stopping is None or not stopping.is_stopping(error):
            raise
        print(f"rloo: {stopping.RunStoppedError()}", file=sys.stderr)
        sys.exit(stopping.RunStoppedError().status)
