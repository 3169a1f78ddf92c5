"""What a window is made of, as hashes: a finished one is passed by, in milliseconds, while this is what there is now.

params.yaml by section, but for what changes no byte of an iteration; the code that dvc.yaml names; its stages; the
outputs of the preparation; the end of the window before; which iterations are evaluated.
"""

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import yaml

from pipeline.lock_text import Lock
from pipeline.plan import LOADER, Plan, window_name
from pipeline.windows.files import end_file, made_of_file
from pipeline.windows.lock import of_the_run, of_windows, outs
from stages.common.errors import StageError
from stages.common.fingerprint import code_hash, file_hash
from stages.common.params_file import load_params

DVC_FILE = Path("dvc.yaml")
NOT_OF_WINDOWS = frozenset({"storage", "resume", "offline"})
NOT_READ = ("data/run.json", "data/manifests/", "data/offline/")  # outputs of the run that no iteration depends on

Facts = dict[str, str]


def digest(content: Any) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def text_digest(path: Path) -> str:
    """Of a small file's text; of one that is not there, that."""
    return digest(path.read_text(encoding="utf-8")) if path.exists() else "not there"


def inputs() -> Facts:
    """What a person may change while a run is under way: options, code and the graph."""
    params = load_params().model_dump(mode="json")
    params["score"].pop("max_failed")  # decides whether a stage stops, never what it writes
    stages = yaml.load(DVC_FILE.read_text(encoding="utf-8"), Loader=LOADER)["stages"]
    sections = {f"params.yaml: {name}": digest(params[name]) for name in params if name not in NOT_OF_WINDOWS}
    return {**sections, "dvc.yaml": digest(stages), **_code(stages)}


def _code(stages: dict[str, Any]) -> Facts:
    deps = {str(dep) for stage in stages.values() for dep in stage.get("do", stage).get("deps", [])}
    named = sorted(Path(dep) for dep in deps if dep.startswith("stages/"))
    return {str(path): code_hash(path) if path.is_dir() else file_hash(path) for path in named if path.exists()}


def preparation(lock: Lock) -> Facts:
    """The outputs of the stages that come before the first iteration, and the evaluation of the initial policy."""
    found = {path: out["md5"] for stage in of_the_run(lock) for path, out in outs(lock, stage).items()}
    return {path: md5 for path, md5 in found.items() if not path.startswith(NOT_READ)}


def facts_now(lock: Lock) -> Facts:
    """All that is the same for each window of the run; `lock` is the open one."""
    return {**inputs(), **preparation(lock)}


def of_window(plan: Plan, facts: Facts) -> Facts:
    """What this window is made of now."""
    start = {"the window before": text_digest(end_file(window_name(plan.number - 1)))} if plan.entry else {}
    shape = {"iterations": f"{plan.names[0]} to {plan.last}", "evaluated": digest(plan.evaluated)}
    return {**facts, **start, **shape}


def own_entries(lock: Lock) -> str:
    """Hash of the window's part of a lock, in whatever order it was written."""
    return digest(of_windows(lock))


TRAINING = frozenset(
    f"params.yaml: {name}"
    for name in (
        *("seed", "compute", "prepare", "sft", "reward_models", "policy"),
        *("rollout", "score", "advantage", "update", "critic"),
    )
)
TRAINING_CODE = tuple(f"stages/{room}" for room in ("rollout", "score", "advantage", "update", "critic", "common"))


def differs_in_training(window: str) -> list[str]:
    """Options and code that the policy at the window's end was trained with, and that are others now."""
    path = made_of_file(window)
    try:
        made_of: Facts = json.loads(path.read_text(encoding="utf-8"))["made_of"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StageError(
            f"{path}: cannot be read ({type(error).__name__}); restore it with git, or by `rloo train`"
        ) from None
    now = {key: value for key, value in inputs().items() if key in TRAINING or key.startswith(TRAINING_CODE)}
    return [key for key, value in now.items() if made_of.get(key) != value]


def reasons(plan: Plan, lock: Lock, facts: Facts) -> list[str]:
    """Why the window is not up to date; nothing if it is. `lock` is the window's own."""
    path, end = made_of_file(plan.window), end_file(plan.window)
    if not path.exists() or not end.exists():
        return ["not finished"]
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        made_of: Facts = found["made_of"]
    except (ValueError, TypeError, KeyError):
        return [f"{path} cannot be read"]
    now = of_window(plan, facts)
    changed = [name for name in {**now, **made_of} if made_of.get(name) != now.get(name)]
    if found.get("lock") != own_entries(lock):
        changed.append("its stages have been run since")
    if found.get("end") != text_digest(end):
        changed.append(f"{end} is not what was written")
    return changed
