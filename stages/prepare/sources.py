"""`prepare sources`: what a run takes from outside `data` -> data/sources/, run.json.

DVC watches the project's own code and options; a user's files, folders and code it cannot know. This part runs each
time, hashes them, and writes one small file per consumer: a stage whose file has changed runs again, the others do not.
Something that is not there is an error here, before anything else runs.
"""

from pathlib import Path
from typing import Any

from stages.common import paths
from stages.common.code_identity import code_identity
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Model, Params, ParamsError, PromptDataset, Prompts, RewardModel, Sft
from stages.common.write_json import write_json
from stages.prepare.functions import of_code, of_rewards
from stages.prepare.hashes import Hashes
from stages.prepare.locate import PACKAGE, locate
from stages.prepare.machine import machine, resolved, version_of, versions
from stages.sft.gold import judges

Found = dict[str, Any]

CALLING = "stages.score.rewards:reward_columns"  # what scores golden answers; its identity is that of the room


def found(params: Params, hashes: Hashes) -> dict[str, Found]:
    """The file's name in data/sources, and its contents."""
    prepare, judge, evaluate, beta = params.prepare, params.judge, params.evaluate, params.score.kl.beta
    return {
        "model": of_model(prepare.model, "prepare.model", hashes),
        "reference": of_model(prepare.reference, "prepare.reference", hashes) if prepare.reference else {},
        "prompts": {**of_prompts(prepare.prompts, hashes), **of_verify(params)},
        "sft": of_sft(params.sft, params, hashes) if params.sft else {},
        "score": of_rewards(params.score.rewards, "score.rewards"),
        "evaluate": {
            **of_rewards(evaluate.rewards, "evaluate.rewards"),
            **of_code({"evaluate.parts": evaluate.parts}),
            "measures_kl": evaluate.measures_kl(beta),  # all that an evaluation has to do with beta
        },
        "options": {"reference_reads": {"train": beta > 0, "heldout": evaluate.measures_kl(beta)}},
        "judge": of_code({"judge.function": judge.function}) if judge else {},
        **{
            f"preferences/{name}": of_reward_model(settings, f"reward_models.{name}", hashes)
            for name, settings in params.reward_models.items()
        },
    }


def of_file(name: str | None, option: str, hashes: Hashes) -> Found:
    """The file's hash, by the option that names it; nothing for null."""
    if name is None:
        return {}
    if not Path(name).is_file():
        raise ParamsError(f"params.yaml: {option} = {name!r}: no such file; paths are relative to the project's folder")
    return {option: hashes.file(Path(name))}


def of_model(settings: Model, option: str, hashes: Hashes) -> Found:
    """A folder or file by content; a hub id as it is written, with its revision."""
    place = locate(settings, option)
    template = of_file(settings.chat_template, f"{option}.chat_template", hashes)
    if isinstance(place, str):
        return {"hub": place, "revision": settings.revision, **template}
    content = hashes.folder(place) if place.is_dir() else hashes.file(place)
    return {"sha256": content, **_package_version(settings.source), **template}


def _package_version(source: str) -> Found:
    if not source.startswith(PACKAGE):
        return {}
    return {"version": version_of(source.removeprefix(PACKAGE).partition("/")[0].partition(".")[0])}


def of_prompts(settings: Prompts, hashes: Hashes) -> Found:
    """Nothing for the embedded generator: its code is a dependency of the stage."""
    if settings.file is not None:
        files = {name: getattr(settings.file, name) for name in ("train", "heldout")}
        return {
            option: content
            for name, file in files.items()
            for option, content in of_file(file, f"prepare.prompts.file.{name}", hashes).items()
        }
    if settings.dataset is not None:
        return _of_dataset(settings.dataset, hashes)
    return {} if settings.gym is None else _of_gym(settings.gym.task)


def of_verify(params: Params) -> Found:
    """The reward that golden answers are scored with, in so far as it decides what they get, and what calls it.

    With this in the file, a stage that prepares prompts does not depend on the other rewards, nor on any weight.
    """
    verify = params.prepare.prompts.verify
    if verify is None:
        return {}
    reward, option = params.score.rewards[verify.reward], f"score.rewards.{verify.reward}"
    return {
        "verify": {option: reward.model_dump(mode="json", exclude={"weight", "cache"})},
        "calling": code_identity(CALLING),
        **of_code({f"{option}.function": reward.function}),
    }


def _of_dataset(settings: PromptDataset, hashes: Hashes) -> Found:
    path = Path(settings.path)
    if path.is_dir():
        return {"sha256": hashes.folder(path)}
    if path.is_file() or settings.path.startswith((".", "/", "~")) or settings.path.count("/") > 1:
        raise ParamsError(
            f"params.yaml: prepare.prompts.dataset.path = {settings.path!r}: no such folder, and not a hub id "
            "(`owner/name`); for a file use prepare.prompts.file"
        )
    return {"hub": settings.path, "name": settings.name, "revision": settings.revision}


def _of_gym(task: str) -> Found:
    installed = version_of("reasoning-gym")
    if installed is None:
        raise ParamsError(
            f"params.yaml: prepare.prompts.gym.task = {task!r}: the package reasoning-gym is not installed; "
            "`pip install reasoning-gym` installs it"
        )
    return {"task": task, "version": installed}


def of_sft(settings: Sft, params: Params, hashes: Hashes) -> Found:
    """The file of demonstrations, or the functions that pick the best answers."""
    if settings.best_of is None:
        return of_file(settings.file, "sft.file", hashes)
    if settings.best_of.gold is not None:
        return of_code({"sft.best_of.gold": settings.best_of.gold})
    return of_rewards(judges(params), "score.rewards")


def of_reward_model(settings: RewardModel, option: str, hashes: Hashes) -> Found:
    """The pairs' file, the function that labels them, or the model that is there already."""
    if settings.source is not None:
        return of_model(Model(source=settings.source), option, hashes)
    assert settings.preferences is not None
    sampled = settings.preferences.sampled
    gold = of_code({f"{option}.preferences.sampled.gold": sampled.gold if sampled else None})
    return gold | of_file(settings.preferences.file, f"{option}.preferences.file", hashes)


def run_facts(params: Params) -> Found:
    """Contents of run.json: every option, those that params.yaml leaves out too, and what they ran with."""
    settings, compute = params.model_dump(mode="json"), resolved(params.compute)
    return {"settings": settings, "compute": compute, "versions": versions(), "machine": machine()}


def run(params: Params, journal: Journal) -> None:
    hashes = Hashes()
    contents = found(params, hashes)
    hashes.keep()
    with publish(paths.SOURCES) as scratch:
        for name, content in contents.items():
            (scratch / f"{name}.json").parent.mkdir(parents=True, exist_ok=True)
            write_json(content, scratch / f"{name}.json")
    with publish(paths.RUN_JSON) as scratch:
        write_json(run_facts(params), scratch)
    journal.say(f"{sum(map(bool, contents.values()))} stages take something from outside")
