"""Running one stage by name, in this process: what `python -m stages.rollout i0003` and every other front door do."""

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from stages.common.errors import StageError
from stages.common.files import sweep_partial
from stages.common.journal import journalled
from stages.common.params import Compute
from stages.common.params_file import load_params
from stages.common.paths import iteration_number

if TYPE_CHECKING:
    from stages.common.device import Runtime
    from stages.common.policy import Models

STAGES = ("prepare", "rollout", "score", "advantage", "diagnose", "update", "evaluate", "history")
PARTS = ("model", "prompts", "policy", "acceptance")  # of `prepare`
WITHOUT_MODELS = frozenset({"prepare", "advantage", "history"})


def models_of(compute: Compute) -> "Models":
    """The models this process holds; a process that runs several stages keeps them warm."""
    from stages.common.device import set_up

    return _held(set_up(compute))


@cache
def _held(runtime: "Runtime") -> "Models":
    from stages.common.policy import Models

    return Models(runtime)


def run_stage(stage: str, name: str) -> None:
    """Run a stage on the files of iteration `name` (for `prepare`: the part; for `history`: the last iteration)."""
    if stage not in STAGES:
        raise StageError(f"no stage {stage!r}; stages are {', '.join(STAGES)}")
    if stage != "prepare":
        iteration_number(name)
    elif name not in PARTS:
        raise StageError(f"prepare has the parts {', '.join(PARTS)}, not {name!r}")
    with journalled(stage, name) as journal:
        params = load_params()
        sweep_partial()
        room = import_module(f"stages.{stage}.run")
        if stage in WITHOUT_MODELS:
            room.run(name, params, journal)
        else:
            room.run(name, params, models_of(params.compute), journal)


def main(stage: str, arguments: list[str]) -> int:
    """Command line of a room; returns the exit status."""
    if len(arguments) != 1:
        print(f"usage: python -m stages.{stage} {'|'.join(PARTS) if stage == 'prepare' else 'ITERATION'}")
        return 2
    try:
        run_stage(stage, arguments[0])
    except StageError as error:
        print(f"{stage} {arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0
