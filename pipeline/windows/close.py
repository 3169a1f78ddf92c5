"""Closing a window: a folder with its plan, its lock, what the next one starts from, and what it was made of."""

import json

from pipeline.lock_text import Lock, lock_text
from pipeline.plan import Plan, plan_text
from pipeline.windows.files import end_file, folder_of, made_of_file, replace_folder
from pipeline.windows.lock import Out, outs, read_lock, trimmed
from pipeline.windows.made_of import Facts, digest, of_window, own_entries
from stages.common import paths
from stages.common.errors import StageError


def entry_files(name: str) -> dict[str, tuple[str, str]]:
    """What a window that begins after iteration `name` starts from: path -> (stage, path there) that made it."""
    update, advantage = f"update@{name}", f"advantage@{name}"
    own = {
        paths.policy(name): update,
        paths.optimizer(name): update,
        paths.critic(name): update,
        paths.advantages(name): advantage,
        paths.manifest("advantage", name): advantage,
        paths.manifest("update", name): update,
    }
    past = {str(paths.iteration(name) / paths.HISTORY.name): ("history", str(paths.HISTORY))}
    return {**{str(path): (stage, str(path)) for path, stage in own.items()}, **past}


def end_of(plan: Plan, lock: Lock) -> str:
    """The text of end.json; a StageError if the window's last iteration is not finished."""
    found: dict[str, Out] = {}
    made: dict[str, dict[str, Out]] = {}
    for path, (stage, source) in entry_files(plan.last).items():
        made[stage] = made.get(stage) or outs(lock, stage)
        if source not in made[stage]:
            raise StageError(f"{plan.window} is not finished: dvc.lock has no {source} of {stage}; run `rloo train`")
        found[path] = made[stage][source]
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


def close(plan: Plan, facts: Facts) -> None:
    """Write the folder of the open window, all of whose stages are up to date."""
    lock = trimmed(read_lock(), plan)
    content = {"plan.yaml": plan_text(plan), "dvc.lock": lock_text(lock), "end.json": end_of(plan, lock)}
    made_of = {"made_of": of_window(plan, facts), "lock": own_entries(lock), "end": digest(content["end.json"])}
    _write(plan, {**content, "made_of.json": json.dumps(made_of, indent=2, sort_keys=True) + "\n"})


def set_aside(plan: Plan) -> None:
    """Save the open window as it is, finished or not. What it was made of when it was last finished is kept beside:
    with another lock it says that the window is not up to date.
    """
    lock = trimmed(read_lock(), plan)
    content = {"plan.yaml": plan_text(plan), "dvc.lock": lock_text(lock)}
    for path in (end_file(plan.window), made_of_file(plan.window)):
        if path.exists():
            content[path.name] = path.read_text(encoding="utf-8")
    _write(plan, content)


def _write(plan: Plan, content: dict[str, str]) -> None:
    folder = folder_of(plan.window)
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*")} if folder.exists() else {}
    if there != content:
        replace_folder(folder, content)
