"""Names of policies on the command line: iterations of the plan, and what `offline` in params.yaml trains."""

from pipeline.plan import read_plan
from stages.common.errors import StageError
from stages.common.params_file import load_params
from stages.common.paths import is_iteration, iteration_name


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
    if is_iteration(name) and name not in read_plan().evaluated:
        raise StageError(
            f"{name} is not evaluated in pipeline/plan.yaml: {', '.join(read_plan().evaluated)} are; and of `offline`: "
            f"{_offline()}"
        )


def _offline() -> str:
    return ", ".join(load_params().offline) or "none"
