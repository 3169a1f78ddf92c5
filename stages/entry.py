"""Running one stage by name, in this process: what `python -m stages.rollout i0003` and every other front door do."""

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from stages.common.disk import telling
from stages.common.errors import StageError
from stages.common.files import sweep_partial
from stages.common.journal import Journal, journalled
from stages.common.kept.keeping import keeping
from stages.common.libraries import imported
from stages.common.manifest import start, write_manifest
from stages.common.params import Compute, Params
from stages.common.params_file import load_params
from stages.common.paths import DATA, is_iteration, iteration_name, iteration_number
from stages.common.record import recording

if TYPE_CHECKING:
    from stages.common.device import Runtime
    from stages.common.policy import Models

PARTS = {  # of the stages that come before the first iteration
    "prepare": ("sources", "model", "prompts", "options", "policy", "reference", "acceptance"),
    "sft": ("demonstrations", "policy"),
    "critic": ("initial",),
}
OF_REWARD_MODELS = ("preferences", "reward_model")  # stages that have the name of one of `reward_models`
OF_OFFLINE = ("offline",)  # that have the name of one of `offline`; `evaluate` and `judge` take these names, too
OF_ITERATIONS = ("rollout", "score", "advantage", "diagnose", "update", "evaluate", "judge", "history")
STAGES = (*PARTS, *OF_REWARD_MODELS, *OF_OFFLINE, *OF_ITERATIONS)
OF_ANY_POLICY = frozenset({"evaluate", "judge"})
WITHOUT_MODELS = frozenset({"prepare", "advantage", "history"})
PASSES_FOLLOW = frozenset({"rollout", "score", "diagnose"})


def models_of(compute: Compute) -> "Models":
    """The models this process holds; a process that runs several stages keeps them warm."""
    from stages.common.device import set_up

    return _held(set_up(compute))


@cache
def _held(runtime: "Runtime") -> "Models":
    from stages.common.policy import Models

    return Models(runtime)


def check_name(stage: str, name: str) -> None:
    """Refuse a stage that does not exist, and a name that it cannot have."""
    if stage not in STAGES:
        raise StageError(f"no stage {stage!r}; stages are {', '.join(STAGES)}")
    if stage in PARTS and name not in PARTS[stage]:
        raise StageError(f"{stage} has the parts {', '.join(PARTS[stage])}, not {name!r}")
    if stage in OF_ITERATIONS and (is_iteration(name) or stage not in OF_ANY_POLICY):
        iteration_number(name)


def run_stage(stage: str, name: str) -> None:
    """Run a stage on the files of iteration `name` (or: its part `name`; for the reward model `name`; up to `name`)."""
    check_name(stage, name)
    with telling(DATA), journalled(stage, name) as journal:
        params = load_params()
        if stage in OF_REWARD_MODELS and name not in params.reward_models:
            raise StageError(f"params.yaml: reward_models has no {name!r}")
        is_offline = stage in OF_OFFLINE or (stage in OF_ANY_POLICY and not is_iteration(name))
        if is_offline and name not in params.offline:
            known = "" if stage in OF_OFFLINE else f"; iterations have names like {iteration_name(3)}"
            raise StageError(f"params.yaml: offline has no {name!r}{known}")
        sweep_partial()
        room = imported(f"stages.{stage}.run", journal)
        with recording(stage, name) as record, keeping(stage, name, params.resume.every_seconds, journal):
            start(record)
            if stage in WITHOUT_MODELS:
                room.run(name, params, journal)
            else:
                run_with_models(stage, room, name, params, journal)
            write_manifest(record)


def run_with_models(stage: str, room: Any, name: str, params: Params, journal: Journal) -> None:
    """Run the room on the models that this process holds; what it has freed goes back to the system, unless passes
    follow at once.
    """
    from stages.common.memory import trim

    done = False
    try:
        room.run(name, params, models_of(params.compute), journal)
        done = True
    finally:
        if not done or stage not in PASSES_FOLLOW:
            trim()


def main(stage: str, arguments: list[str]) -> int:
    """Command line of a room; returns the exit status."""
    if len(arguments) != 1:
        print(f"usage: python -m stages.{stage} {'|'.join(PARTS.get(stage, ('NAME',)))}")
        return 2
    try:
        run_stage(stage, arguments[0])
    except StageError as error:
        print(f"{stage} {arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0
