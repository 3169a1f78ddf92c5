"""What runs in windows are compared by."""

import json
import shutil

import yaml


def hashes(workspace):
    """stage -> path -> hash, over the open window and the finished ones, without what only windows have."""
    found = dict(workspace.lock())
    for path in sorted(workspace.folder.glob("pipeline/windows/w*/dvc.lock")):
        if path.parent.name != open_window(workspace):
            for stage, entry in yaml.safe_load(path.read_text())["stages"].items():
                found.setdefault(stage, {out["path"]: out["md5"] for out in entry["outs"]})
    for path in [path for path in found["history"] if path.startswith("data/manifests")]:
        del found["history"][path]  # it names what the stage has read: in windows, the history of the one before
    return {stage: outs for stage, outs in sorted(found.items()) if not stage.startswith("window_entry")}


def open_window(workspace):
    return yaml.safe_load((workspace.folder / "pipeline/plan.yaml").read_text())["window"]


def frozen(workspace, *parts):
    """The bytes of every file, by path."""
    places = [place for part in parts for place in (workspace.folder / part, *(workspace.folder / part).rglob("*"))]
    return {str(path): path.read_bytes() for path in sorted(places) if path.is_file()}


def remove(workspace, path, md5):
    """From `data` and from the cache."""
    cache = workspace.folder / ".dvc/cache/files/md5"
    target, file = workspace.folder / path, cache / md5[:2] / md5[2:]
    if md5.endswith(".dir"):
        for one in json.loads(file.read_text()):
            (cache / one["md5"][:2] / one["md5"][2:]).unlink(missing_ok=True)
        shutil.rmtree(target, ignore_errors=True)
    else:
        target.unlink(missing_ok=True)
    file.unlink(missing_ok=True)
