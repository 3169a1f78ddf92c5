"""A run of twelve iterations in windows of five, put together by hand from the plans and locks of real runs."""

import copy
import json
import shutil
from pathlib import Path

import yaml

from pipeline.plan import Plan, write_plan
from tests.workspace import Workspace

SIZE, ITERATIONS, EVERY = 5, 12, 6
STARTS = (
    "policies/{0}",
    "optimizer/{0}/optimizer.safetensors",
    "critics/{0}",
    "iterations/{0}/advantages.parquet",
    "manifests/{0}/advantage.json",
    "manifests/{0}/update.json",
)
ENTRY = '''"""Stand-in of the command of `window_entry`: what end.json names, from the cache."""

import json
import shutil
import sys
from pathlib import Path

import yaml

(name,) = sys.argv[1:]
window = yaml.safe_load(Path("pipeline/plan.yaml").read_text())["entry"][name]["window"]
cache = Path(".dvc/cache/files/md5")


def put(md5, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(cache / md5[:2] / md5[2:], target)


for path, out in json.loads(Path(f"pipeline/windows/{window}/end.json").read_text()).items():
    if out["md5"].endswith(".dir"):
        Path(path).mkdir(parents=True, exist_ok=True)
        for one in json.loads((cache / out["md5"][:2] / out["md5"][2:]).read_text()):
            put(one["md5"], Path(path) / one["relpath"])
    else:
        put(out["md5"], Path(path))
'''


def lock_of(workspace, lock="dvc.lock"):
    return yaml.safe_load((workspace.folder / lock).read_text())["stages"]


def write_lock(path, stages):
    path.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}, sort_keys=False))


def plan_of(number, iterations=ITERATIONS, size=SIZE):
    return Plan(iterations, EVERY, size, number, (number - 1) * size + 1)


def of_run(stages):
    """What comes before the first iteration: each window's lock has it."""
    return {name: entry for name, entry in stages.items() if "@i" not in name or name == "evaluate@i0000"}


def finish(workspace, plan):
    """Put the open window aside as a finished one, and open the next."""
    folder = workspace.folder / "pipeline" / "windows" / plan.window
    folder.mkdir()
    stages = lock_of(workspace)
    made = {out["path"]: out for entry in stages.values() for out in entry["outs"]}
    end = {path: made[path] for path in (f"data/{one.format(plan.last)}" for one in STARTS)}
    end[f"data/iterations/{plan.last}/history.parquet"] = made["data/history.parquet"]
    keys = ("md5", "size", "nfiles")
    short = {path: {key: out[key] for key in keys if key in out} for path, out in end.items()}
    (folder / "end.json").write_text(json.dumps(short))
    (folder / "made_of.json").write_text("{}")
    write_plan(plan, folder / "plan.yaml")
    write_lock(folder / "dvc.lock", stages)
    write_plan(plan_of(plan.number + 1), workspace.folder / "pipeline" / "plan.yaml")
    kept = {name: entry for name, entry in of_run(stages).items() if name != "history"}
    write_lock(workspace.folder / "dvc.lock", kept)


def commit(workspace, message="a run"):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    workspace.run("git", "add", "-A")
    workspace.run("git", *who, "commit", "-q", "-m", message)


def at(workspace: Workspace, folder: Path) -> Workspace:
    """The commands of a workspace in another folder."""
    moved = copy.copy(workspace)
    moved.folder, moved.extra, moved.params = folder, {}, copy.deepcopy(workspace.params)
    return moved


def drop(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
