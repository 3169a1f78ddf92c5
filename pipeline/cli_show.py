"""`rloo show`: the tables of a run."""

from typing import Annotated

import typer
from rich.console import Console

from pipeline.plan import read_plan

app = typer.Typer(no_args_is_help=True, help="Show the tables of a run.")

Policy = Annotated[str, typer.Argument(help="name of an iteration, such as i0003, or of one of `offline`")]
Iteration = Annotated[str, typer.Argument(help="name of an iteration, such as i0003")]


@app.command("history")
def show_history(
    every: Annotated[bool, typer.Option("--all", help="every iteration, however many there are")] = False,
) -> None:
    """The training curve; of a long run the ends, the evaluated iterations, and some between."""
    from pipeline import show

    show.history(Console(), folded=not every)


@app.command("diagnostics")
def show_diagnostics() -> None:
    """Where the signal is, and how far the updates go: groups, spread, ratios, gradient by length."""
    from pipeline import show

    show.diagnostics(Console())


@app.command("eval")
def show_eval(
    before: Policy = "i0000", after: Annotated[str | None, typer.Argument(help="another one")] = None
) -> None:
    """Held-out reward of two policies, part by part (the first and the last iteration, if not given)."""
    from pipeline import show

    show.comparison(Console(), before, after or read_plan().last)


@app.command("rows")
def show_rows(
    iteration: Iteration,
    prompt: Annotated[str | None, typer.Option(help="all samples of one prompt_id")] = None,
    count: Annotated[int, typer.Option(help="how many of the best and of the worst")] = 3,
    scores: Annotated[str, typer.Option(help="`scores`, the run's own, or a NAME of `rloo rescore`")] = "scores",
) -> None:
    """Prompt, completion, rewards, baseline, advantage, and why each row counted."""
    from pipeline import show

    show.rows(Console(), iteration, prompt, count, scores)
