"""`prepare sources`: what a run takes from outside `data` -> data/sources/, run.json.

DVC watches the project's own code and options; a user's files, folders and code it cannot know. This part runs each
time, hashes them, and writes one small file per consumer: a stage whose file has changed runs again, the others do not.
"""

from typing import Any

from stages.common import paths
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.write_json import write_json

CONSUMERS = ("model", "reference", "prompts", "sft", "score", "evaluate", "judge")


def found(params: Params) -> dict[str, dict[str, Any]]:
    """The file's name in data/sources, and its contents."""
    names = [*CONSUMERS, *(f"preferences/{name}" for name in params.reward_models)]
    return {name: {} for name in names}


def run(params: Params, journal: Journal) -> None:
    with publish(paths.SOURCES) as scratch:
        for name, content in found(params).items():
            (scratch / f"{name}.json").parent.mkdir(parents=True, exist_ok=True)
            write_json(content, scratch / f"{name}.json")
    with publish(paths.RUN_JSON) as scratch:
        write_json(params.model_dump(mode="json"), scratch)
    journal.say("hashed")
