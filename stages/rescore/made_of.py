"""What rescored tables were made with, so that nothing is computed twice and nothing of two kinds is mixed.

The recipe is one for all iterations of a NAME: rewards, their code, estimator and penalty. Another recipe under the
same NAME is refused. What an iteration is made of besides are files: where one has changed, the iteration is stale and
is computed again. `made_of.json` lies in each iteration's folder and is published with it; `rewards.json` comes last.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from stages.common import paths
from stages.common.code_identity import code_identity
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.fingerprint import code_hash, file_hash, folder_hash
from stages.common.params import Params, Reward
from stages.common.read_json import read_json
from stages.common.write_json import write_json

Json = dict[str, Any]

ROOMS = ("advantage", "common", "rescore", "score")
STAGES = Path(__file__).resolve().parents[1]


def manifest_path(name: str) -> Path:
    return paths.RESCORED / name / "rewards.json"


def recipe(rewards: dict[str, Reward], params: Params) -> Json:
    """Rewards with the code or the model behind them, estimator and penalty; plain JSON."""
    found: Json = {
        "rewards": {name: reward.model_dump(exclude={"cache"}) for name, reward in rewards.items()},
        "order": list(rewards),  # of the columns; the keys of JSON are sorted
        "behind": {name: _behind(reward) for name, reward in rewards.items()},
        "advantage": _in_use(params.advantage.model_dump(mode="json")),
        "kl": {"beta": params.score.kl.beta, "placement": params.score.kl.placement},
    }
    if any(reward.model is not None for reward in rewards.values()):
        found["pack_tokens"] = params.score.pack_tokens
    try:
        plain: Json = json.loads(json.dumps(found, allow_nan=False, default=str))  # a date in YAML is no text
    except ValueError as error:
        raise StageError(f"arguments of a reward cannot be written as JSON: {error}") from None
    return plain


def _in_use(options: Json) -> Json:
    """Without the options of other estimators, which change nothing."""
    return {key: value for key, value in options.items() if not isinstance(value, dict) or key == options["estimator"]}


def _behind(reward: Reward) -> dict[str, str]:
    if reward.function is not None:
        return code_identity(reward.function)
    assert reward.model is not None
    return {"model": folder_hash(paths.reward_model(reward.model))}


def inputs(name: str, iteration: str, params: Params) -> dict[str, str]:
    """Hashes of the files that the tables of an iteration are made of."""
    found = {
        "prompts": file_hash(paths.PROMPTS),
        "rollouts": file_hash(paths.rollouts(iteration)),
        "scores": file_hash(paths.scores(iteration)),
        **{f"stages/{room}": code_hash(STAGES / room) for room in ROOMS},
    }
    if params.advantage.estimator == "moving_average" and iteration != paths.iteration_name(1):
        before = paths.rescored(name, paths.previous(iteration)) / "advantages.parquet"
        found["before"] = file_hash(before) if before.exists() else "none"
    return found


def made_of(recipe_: Json, inputs_: dict[str, str], folder: Path) -> Json:
    """What stands in `made_of.json` beside the two tables in `folder`."""
    tables = {table: file_hash(folder / f"{table}.parquet") for table in ("scores", "advantages")}
    return {"recipe": recipe_, "inputs": inputs_, "tables": tables}


REMEDY = "delete its folder and rescore"


def read_made_of(folder: Path) -> Json:
    """What a folder's tables were made of, {} if nothing is there."""
    return read_json(folder / "made_of.json", REMEDY)


def up_to_date(name: str, iteration: str, recipe_: Json, params: Params) -> bool:
    """Whether the tables lie there as they were made, of this recipe and of the files as they are now."""
    folder = paths.rescored(name, iteration)
    if not all((folder / f"{table}.parquet").exists() for table in ("scores", "advantages")):
        return False
    return read_made_of(folder) == made_of(recipe_, inputs(name, iteration, params), folder)


def check_recipe(name: str, recipe_: Json, *, overwrite: bool) -> None:
    """Refuse to mix the tables of two recipes; `overwrite` says that the old ones may go."""
    for path in sorted((paths.RESCORED / name).glob("i*/made_of.json")):
        before = read_json(path, REMEDY).get("recipe", {})
        if before != recipe_ and not overwrite:
            changed = ", ".join(differences(before, recipe_))
            raise StageError(
                f"NAME {name}: {path.parent} was made with something else ({changed}); choose another NAME, or give "
                "--overwrite to replace all tables of this one"
            )


def differences(before: Json, after: Json) -> list[str]:
    """Keys whose values differ, such as `rewards.brief.weight`; of the order of columns only if nothing else does."""
    found = _differences(before, after)
    return [key for key in found if key != "order"] or found


def _differences(before: Json, after: Json) -> list[str]:
    found = []
    for key in sorted(set(before) | set(after)):
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += [f"{key}.{inner}" for inner in _differences(old, new)]
        elif old != new:
            found.append(key)
    return found


def clear_other(name: str, recipe_: Json) -> None:
    """Remove the tables of another recipe, and the manifest first, which speaks for all of them."""
    folder = paths.RESCORED / name
    others = [p.parent for p in folder.glob("i*/made_of.json") if read_json(p, REMEDY).get("recipe") != recipe_]
    if others:
        manifest_path(name).unlink(missing_ok=True)
    for other in others:
        shutil.rmtree(other)


def write_manifest(name: str, recipe_: Json) -> None:
    """`rewards.json`: the recipe, and for each iteration that lies there what it was made of."""
    folders = sorted(p.parent for p in (paths.RESCORED / name).glob("i*/made_of.json"))
    found = {folder.name: read_made_of(folder) for folder in folders}
    kept = {key: {part: one[part] for part in ("inputs", "tables")} for key, one in found.items()}
    with publish(manifest_path(name)) as scratch:
        write_json({**recipe_, "iterations": kept}, scratch)
