"""Names of policies on the command line: iterations of the run, and what `offline` in params.yaml trains."""

from pipeline.plan import read_plan
from pipeline.windows.present import check_evaluation
from stages.common.errors import StageError
from stages.common.params_file import load_params
from stages.common.paths import is_iteration, iteration_name

MANY = 12  # evaluated iterations that are all named


def check_policy(name: str) -> None:
    """Refuse what is neither an iteration's name nor one of `offline`."""
    if not is_iteration(name) and name not in load_params().offline:
        raise StageError(
            f"no policy {name!r}: policies are iterations, with names like {iteration_name(3)}, and those of `offline` "
            f"in params.yaml: {_offline()}"
        )


def check_evaluated(name: str) -> None:
    """Refuse a policy that is not evaluated: files of another plan may still lie there, made with other params."""
    check_policy(name)
    if not is_iteration(name):
        return
    evaluated = read_plan().whole.evaluated
    if name not in evaluated:
        shown = evaluated if len(evaluated) <= MANY else [*evaluated[:3], "...", evaluated[-1]]
        raise StageError(
            f"{name} is not evaluated in pipeline/plan.yaml: {', '.join(shown)} are; and of `offline`: {_offline()}"
        )
    check_evaluation(name)


def _offline() -> str:
    return ", ".join(load_params().offline) or "none"
