"""Prompts from a task of reasoning-gym: its questions, and the entries that its scorer wants back.

A task makes its entries one by one from (seed, place). Training takes those at the beginning, held-out prompts come
after them. Generators repeat themselves: an entry whose question is there already is passed over, so that no prompt is
in both splits and none twice, and the task is asked for more entries.
"""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import polars as pl

from stages.common.params import Gym, ParamsError
from stages.prepare.prompts.columns import Part
from stages.score.gym import restored, scorer

OPTION = "prepare.prompts.gym"
OVERSIZE = (1, 2, 4, 8, 16)  # how many times the wanted entries a task is asked for before it counts as exhausted
CHECKED = 3  # entries whose answer is scored by the task itself, as it is and as JSON keeps it
COLUMNS = dict.fromkeys(("prompt", "answer", "gym_task", "gym_config", "gym_entry"), pl.String())


def parts(settings: Gym) -> tuple[Part, Part]:
    """The training prompts, and the held-out ones after them."""
    place, wanted = f"reasoning-gym {settings.task}", settings.train + settings.heldout
    dataset = _dataset(settings, wanted)
    _check_json(settings, dataset, wanted)
    for factor in OVERSIZE:
        rows = _different(_dataset(settings, wanted * factor), settings, wanted)
        if len(rows) == wanted:
            break
    else:
        raise ParamsError(
            f"params.yaml: {OPTION}: {settings.task} has {len(rows)} different questions among its first "
            f"{wanted * factor}, and train + heldout are {wanted}; ask for fewer, or give it a config with more"
        )
    repeated = rows[-1][0] - wanted
    notes = [f"{place}: {repeated} entries repeat a question, and are passed over"] if repeated else []
    return _part(place, rows[: settings.train], notes), _part(place, rows[settings.train :], [])


def _different(dataset: Any, settings: Gym, wanted: int) -> list[tuple[int, dict[str, Any]]]:
    """(place from 1, row) of up to `wanted` entries with different questions."""
    rows: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, entry in _entries(settings, dataset):
        rows.setdefault(entry["question"], (number, _row(entry, settings, number)))
        if len(rows) == wanted:
            break
    return list(rows.values())


def _part(place: str, rows: list[tuple[int, dict[str, Any]]], notes: list[str]) -> Part:
    return Part(place, [number for number, _ in rows], pl.DataFrame([row for _, row in rows], schema=COLUMNS), notes)


def _dataset(settings: Gym, size: int) -> Any:
    """The task with its config; a ParamsError if one of them is wrong."""
    create, known = _library()
    if settings.task not in known:
        near = get_close_matches(settings.task, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ParamsError(f"params.yaml: {OPTION}.task = {settings.task!r}: reasoning-gym has no such task{hint}")
    _check_config(settings, known[settings.task][1])
    try:
        return create(settings.task, seed=settings.seed, size=size, **settings.config)
    except Exception as error:  # tasks check their configs each in their own way
        raise _refused(settings, error) from None


def _entries(settings: Gym, dataset: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    for place in range(dataset.size):
        try:
            entry = dataset[place]
        except Exception as error:  # the config is wrong, or the task has no more
            raise _refused(settings, error) from None
        yield place + 1, entry


def _refused(settings: Gym, error: Exception) -> ParamsError:
    told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ParamsError(f"params.yaml: {OPTION}.config: {settings.task} with {settings.config} refuses it: {told}")


def _check_json(settings: Gym, dataset: Any, wanted: int) -> None:
    """The reward (stages/score/gym.py) has to say the same of an entry in the table as the task says of its own."""
    for number, entry in _entries(settings, dataset):
        if number > min(CHECKED, wanted):
            return
        row, answer = _row(entry, settings, number), entry["answer"]
        if answer is None:
            continue
        try:
            score = scorer(settings.task, row["gym_config"])
            kept = score(answer, restored(score, json.loads(row["gym_entry"])))
        except ValueError as error:
            raise _unkept(settings.task, number, str(error)) from None
        if kept != dataset.score_answer(answer, entry):
            raise _unkept(settings.task, number, "it gives its own answer another score then")


def _unkept(task: str, number: int, why: str) -> ParamsError:
    return ParamsError(
        f"params.yaml: {OPTION}.task = {task!r}: entry {number} cannot be kept as JSON for the scorer: {why}; "
        "take another task"
    )


def _library() -> tuple[Any, dict[str, Any]]:
    """What makes a task, and {name: (class, class of its config)} of all tasks."""
    try:
        from reasoning_gym import create_dataset
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ParamsError(
            f"params.yaml: {OPTION}: reasoning-gym cannot be imported ({error}); pip install 'rloo-pipeline[gym]'"
        ) from None
    return create_dataset, DATASETS


def _check_config(settings: Gym, config: Any) -> None:
    """Options have to be those of the task; its seed and size have places of their own."""
    where = f"params.yaml: {OPTION}.config"
    options = [name for name in config.__dataclass_fields__ if name not in ("seed", "size")]
    for name in settings.config:
        if name in ("seed", "size"):
            raise ParamsError(
                f"{where}.{name}: set {OPTION}.{'seed' if name == 'seed' else 'train and heldout'} instead"
            )
        if name not in options:
            near = get_close_matches(name, options, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(options) or 'none'}"
            raise ParamsError(f"{where}.{name}: {settings.task} has no such option; {hint}")


def _row(entry: dict[str, Any], settings: Gym, number: int) -> dict[str, Any]:
    """The entry as columns: `gym_entry` is all of it as JSON and `gym_config` the config, for the task's own scorer."""
    task, answer = settings.task, entry["answer"]
    if not _keys_are_texts(entry):
        raise _unkept(task, number, "its metadata has keys that are no texts")
    if answer is not None and not isinstance(answer, str):
        raise _unkept(task, number, f"its answer is a {type(answer).__name__}, and a completion is a text")
    try:
        whole = json.dumps(entry, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _unkept(task, number, str(error)) from None
    return {
        "prompt": entry["question"],
        "answer": answer,
        "gym_task": task,
        "gym_config": config_text(settings),
        "gym_entry": whole,
    }


def config_text(settings: Gym) -> str:
    """The config as JSON; a ParamsError for what JSON cannot keep, such as a date or a number as a key."""
    try:
        text = json.dumps(settings.config, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ParamsError(f"params.yaml: {OPTION}.config cannot be kept as JSON for the scorer: {error}") from None
    if not _keys_are_texts(settings.config):
        raise ParamsError(f"params.yaml: {OPTION}.config: keys have to be texts, as JSON keeps no others; quote them")
    return text


def _keys_are_texts(value: Any) -> bool:
    """JSON would turn a number as a key into a text, and the scorer would not find it."""
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_keys_are_texts, value.values()))
    return not isinstance(value, (list, tuple)) or all(map(_keys_are_texts, value))
