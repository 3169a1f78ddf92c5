"""Where everything is."""

from rich.console import Console

from pipeline.plan import Plan
from stages.common import paths


def files(console: Console, plan: Plan) -> None:
    """Where everything is."""
    last = plan.last
    rows = [
        (paths.policy(last), "the trained policy (`rloo export` writes it as one model folder)"),
        (paths.iteration(last), "rollouts, scores, advantages, optimizer steps, evaluation, as Parquet and JSON"),
        (paths.HISTORY_CSV, "one row per iteration; also as .parquet; `dvc plots show` draws it"),
        (paths.SECONDS_CSV, "seconds per stage"),
    ]
    for path, what in rows:
        console.print(f"  {path!s:32} {what}", markup=False, highlight=False)
