"""What all runs of a study share: model, prompts and demonstrations; the fine-tuned model; a reward model per noise."""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from pipeline.study.runs import words, workspace
from pipeline.study.runs.settings import Study, World
from stages.common import paths
from stages.common.files import publish
from stages.common.params import Params
from stages.common.tables import PROMPTS, write_table

DEMONSTRATIONS = Path("demonstrations.jsonl")
PROXY = "proxy"


def start_folder(study: Study) -> Path:
    return study.folder / "start"


def sft_folder(study: Study) -> Path:
    return study.folder / "sft"


def reward_folder(study: Study, flips: str) -> Path:
    return study.folder / "reward_models" / flips


@contextmanager
def made_of(study: Study, target: Path, shared: dict[Path, Path]) -> Iterator[Path]:
    """Work in a scratch folder and publish what the block puts into the folder that it is given."""
    with publish(target) as scratch:
        work, results = scratch.resolve() / "work", scratch.resolve()
        with workspace.inside(work, shared):
            yield results
        shutil.rmtree(work)


def start(study: Study) -> None:
    """Model, prompts and, in the small world, demonstrations."""
    params, world = study.shared_params(), study.settings.world
    with made_of(study, start_folder(study), {}) as results:
        if world is None:
            workspace.run("prepare", "model", params)
            workspace.run("prepare", "prompts", params)
        else:
            make_world(world, params, results)
        shutil.move(paths.BASE, results / "base")
        shutil.move(paths.PROMPTS, results / "prompts.parquet")


def make_world(world: World, params: Params, results: Path) -> None:
    """The small world, all of it by the seed."""
    from pipeline.study.runs.tiny_model import write_model

    size = {"hidden": world.hidden, "layers": world.layers, "heads": world.heads}
    write_model(paths.BASE, words.VOCABULARY, words.END, size, params.seed)
    texts = words.all_prompts()
    random.Random(params.seed).shuffle(texts)
    heldout, training = texts[: world.heldout], texts[world.heldout :]
    ids = {word: place for place, word in enumerate(words.VOCABULARY)}
    rows = [
        {
            "prompt_id": f"{split}-{number:05d}",
            "split": split,
            "prompt": text,
            "prompt_text": text,
            "prompt_tail": "",
            "prompt_ids": [ids[word] for word in text.split()],
        }
        for split, chosen in (("heldout", heldout), ("train", training * world.repeats))
        for number, text in enumerate(chosen)
    ]
    write_table(pl.DataFrame(rows, schema=PROMPTS), PROMPTS, ("prompt_id",), paths.PROMPTS)
    with (results / DEMONSTRATIONS).open("w", encoding="utf-8") as file:
        for one in words.demonstrations(training, world.demonstrations, params.seed):
            file.write(json.dumps(one) + "\n")


def started(study: Study) -> dict[Path, Path]:
    """Where the stages look for model, prompts and demonstrations, and where they are."""
    folder = start_folder(study)
    found = {paths.BASE: folder / "base", paths.PROMPTS: folder / "prompts.parquet"}
    return found | ({DEMONSTRATIONS: folder / DEMONSTRATIONS} if study.settings.world else {})


def sft(study: Study) -> None:
    """The fine-tuned model: the initial policy and the reference of all runs."""
    params = study.shared_params()
    with made_of(study, sft_folder(study), started(study)) as results:
        workspace.run("sft", "demonstrations", params)
        workspace.run("sft", "policy", params)
        shutil.move(paths.REFERENCE, results / "reference")
        shutil.move(paths.SFT_STEPS, results / "sft.parquet")


def fine_tuned(study: Study) -> dict[Path, Path]:
    return started(study) | {paths.REFERENCE: sft_folder(study) / "reference"}


def reward_model(study: Study, flips: str) -> None:
    """Pairs of the fine-tuned model's answers, labelled by gold, some flipped; and what is learnt of them."""
    params = study.shared_params(flips)
    with made_of(study, reward_folder(study, flips), fine_tuned(study)) as results:
        for stage in ("preferences", "reward_model"):
            workspace.run(stage, PROXY, params)
        for path in (paths.preferences(PROXY), paths.reward_model(PROXY), paths.reward_metrics(PROXY)):
            target = results / path.relative_to(paths.DATA)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)


def rewarded(study: Study, flips: str) -> dict[Path, Path]:
    """All that a run starts from."""
    folder = reward_folder(study, flips)
    names = (paths.preferences(PROXY), paths.reward_model(PROXY))
    return fine_tuned(study) | {path: folder / path.relative_to(paths.DATA) for path in names}
