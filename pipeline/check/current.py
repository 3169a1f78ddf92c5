"""What earlier commands made that need not be made again: as DVC has it, and as what comes from outside is now."""

from collections.abc import Sequence
from pathlib import Path

from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.repo import Repo

from pipeline.dvc_quiet import quiet
from pipeline.windows.checkout import by_name
from stages.common import paths
from stages.common.params import Params

FINE_TUNED = ("prepare_prompts", "prepare_options", "sft_demonstrations", "sft_policy")


def is_current(stages: Sequence[str]) -> bool:
    """Whether outputs, dependencies and options of the stages are those of their last run; False if DVC cannot say,
    such as while another command holds its lock.
    """
    quiet()
    try:
        with Repo() as repo, repo.lock:
            found = by_name(repo)
            return not any(found(name).status() for name in stages)
    except (DvcException, LockError):
        return False


def same_sources(consumers: Sequence[str], work: Path) -> bool:
    """Whether what stages take from outside is what it was when `prepare sources` last ran for the project.

    `work`: the folder of the dry run, where it has just run.
    """
    for consumer in consumers:
        path = paths.SOURCES / f"{consumer}.json"
        if not path.exists() or path.read_bytes() != (work / path).read_bytes():
            return False
    return True


def reusable(params: Params, work: Path) -> list[Path]:
    """Files and folders of the project's `data` that the dry run in `work` takes as they are."""
    if not (paths.MODEL_JSON.exists() and same_sources(["model"], work) and is_current(["prepare_model"])):
        return []
    made = [paths.BASE, paths.MODEL_JSON]
    if params.sft is not None:
        if not (same_sources(["prompts", "sft"], work) and is_current(FINE_TUNED)):
            return made
        made.append(paths.REFERENCE)
    return made + [path for name in used_models(params) for path in reward_model(name, work)]


def used_models(params: Params) -> list[str]:
    """The reward models that scores or the critic need."""
    names = {reward.model for reward in params.score.rewards.values() if reward.model is not None}
    if params.critic is not None and params.critic.initial != "policy":
        names.add(params.critic.initial)
    return sorted(names)


def reward_model(name: str, work: Path) -> list[Path]:
    """The folder of a reward model, if it is what params.yaml asks for."""
    stages = ["prepare_prompts", "sft_policy", f"preferences@{name}", f"reward_model@{name}"]
    same = same_sources(["prompts", f"preferences/{name}"], work) and is_current(stages)
    return [paths.reward_model(name)] if same else []
