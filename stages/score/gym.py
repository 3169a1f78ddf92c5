"""The scorer of a reasoning-gym task, given the extracted answer.

    gym:
      function: stages.score.gym:gym_reward
      arguments: {extract: {tag: answer}}

Install it with the extra `gym`. The prompts of the source `gym` bring the columns `gym_task`, the task's name,
`gym_config`, its config as JSON, and `gym_entry`, its entry as JSON (question, answer, metadata). The scorer is that of
the task with its config, in which may stand how close a number has to be. Scorers take the bare answer: most give .01
or so for an answer inside a sentence, so say by `extract` (stages/score/extract.py) where the completion has it.

JSON has no tuples: an entry whose golden answer gets the full score only with tuples in the metadata is read with them.

    entry or config that is no JSON, unknown task              row unscorable
    scorer that raises; without memory the call raises         row unscorable
    golden answer that does not get the full score itself      row unscorable
    score that is not a finite number                          row unscorable
    nothing extracted from the completion                      missing_reward

Scorers of some tasks run the answer as an expression or a program of the task's own: what hangs costs its row's limit.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from stages.score.columns import Scored, check_missing_reward, column_of, tails_of
from stages.score.extract import Rule, check_rule, extracted
from stages.score.outcome import Unscorable
from stages.score.texts import text_of

Scorer = Callable[[str, dict[str, Any]], float]


def check(extract: Any = "whole", missing_reward: float = 0.0) -> None:
    """Refuse wrong arguments, and a missing extra, before anything is sampled."""
    check_rule(extract, "gym_reward: extract")
    check_missing_reward(missing_reward, "gym_reward")
    _reasoning_gym()


def _reasoning_gym() -> Any:
    try:
        import reasoning_gym
    except ImportError as error:
        raise ValueError(f"gym_reward needs reasoning-gym ({error}): pip install 'rloo-pipeline[gym]'") from None
    return reasoning_gym


@lru_cache
def scorer(task: str, config: str) -> Scorer:
    """The scorer of the task with its config, JSON."""
    made = _reasoning_gym().create_dataset(task, seed=0, size=1, **json.loads(config))
    return made.score_answer  # type: ignore[no-any-return]


def gym_reward(
    completions: Sequence[Any], extract: Rule = "whole", missing_reward: float = 0.0, **columns: Any
) -> Scored:
    """The scorer's reward, one per completion; of nearly all tasks it is in [0, 1]."""
    tasks = column_of(columns, "gym_task", "gym_reward")
    entries = column_of(columns, "gym_entry", "gym_reward")
    configs = column_of(columns, "gym_config", "gym_reward")
    rows = zip(completions, tasks, configs, entries, tails_of(columns, len(completions)), strict=True)
    return [
        scored(extracted(text_of(completion), extract, tail), (task, config), entry, missing_reward)
        for completion, task, config, entry, tail in rows
    ]


def restored(score: Scorer, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry as the task made it, as far as its golden answer tells lists from tuples.

    A ValueError if the golden answer does not get the full score in either form: then nobody's answer could be judged.
    """
    gold, metadata = entry["answer"], entry["metadata"]
    if not isinstance(gold, str):
        return entry
    with_tuples = entry | {"metadata": {name: tupled(value) for name, value in metadata.items()}}
    scores = [float(score(gold, form)) for form in (entry, with_tuples)]
    if max(scores) < 1:
        raise ValueError(f"the golden answer {gold[:80]!r} itself gets {max(scores):g}")
    return entry if scores[0] >= 1 else with_tuples


def tupled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: tupled(one) for name, one in value.items()}
    return tuple(tupled(one) for one in value) if isinstance(value, list) else value


def scored(answer: str | None, of: tuple[str, str], entry: str, missing_reward: float) -> float | Unscorable:
    """`of`: the task and its config."""
    _reasoning_gym()  # without it the whole call fails, and no row is to blame
    try:
        score = scorer(*of)
        read = restored(score, json.loads(entry))
    except MemoryError:
        raise
    except Exception as error:
        return Unscorable(f"the entry of task {of[0]!r} cannot be used: {type(error).__name__}: {error}")
    if answer is None:
        return missing_reward
    try:
        reward = float(score(answer, read))
    except MemoryError:
        raise
    except Exception as error:
        return Unscorable(f"the scorer of task {of[0]!r} raised {type(error).__name__}: {error}")
    return reward if math.isfinite(reward) else Unscorable(f"the scorer of task {of[0]!r} returned {reward}")


def needs(**arguments: Any) -> set[str]:
    """The columns that prompts of the source `gym` have."""
    return {"gym_task", "gym_config", "gym_entry"}


gym_reward.needs = needs  # type: ignore[attr-defined]
gym_reward.check = check  # type: ignore[attr-defined]
