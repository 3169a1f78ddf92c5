"""Both tables of a few hand-made rows, by the stages' own functions."""

import copy
from dataclasses import replace

import polars as pl

from stages.advantage.run import advantage_table
from stages.common.params import Reward
from stages.common.params_file import parse_params
from stages.common.tables import SCORES, reward_schema
from stages.compare.rows_changed import Side
from stages.score.kl import add_score
from stages.score.rewards import add_task_reward
from tests.workspace import tiny_params

RAW = tiny_params("nowhere")
FUNCTION = "stages.score.overlong:soft_overlong"


def params_of(**changes):
    """`advantage__clip=1.0` sets params.advantage.clip."""
    raw = copy.deepcopy(RAW)
    raw["score"]["kl"] = {"beta": 0.0}
    for key, value in changes.items():
        *sections, name = key.split("__")
        section = raw
        for part in sections:
            section = section[part]
        section[name] = value
    return parse_params(raw, "params.yaml")


def side(groups, *, greedy=None, weights=None, kl=None, carried=(), **changes):
    """`groups`: {prompt_id: {reward: [value or None (missing) or (status, message)]}}; `greedy`: the same, of a greedy
    completion each; `kl`: {prompt_id: [nats]}.
    """
    params = params_of(**changes)
    names = list(next(iter(groups.values())))
    rewards = {name: Reward(function=FUNCTION, weight=(weights or {}).get(name, 1.0)) for name in names}
    rows = [row_of(p, n, columns, kl or {}) for p, columns in groups.items() for n in range(len(columns[names[0]]))]
    rows += [row_of(p, 0, columns, {}) | {"kind": "greedy"} for p, columns in (greedy or {}).items()]
    schema = SCORES | reward_schema(names)
    frame = add_task_reward(pl.DataFrame(rows, schema={**schema}, strict=False), rewards)
    scored = add_score(frame, params.score.kl.beta_in("reward"))
    scores = scored.with_columns(
        in_baseline=(pl.col("kind") == "sample") & pl.col("accepted") & pl.col("task_reward").is_not_null()
    ).select(list(schema))
    known = {"beta": params.score.kl.beta, "placement": params.score.kl.placement}
    return Side(scores, advantage_table(scores, params, list(carried)), weights or {}, known)


def row_of(prompt_id, number, columns, kl):
    nats = kl.get(prompt_id, [0.0] * 100)[number]
    row = {"iteration": 2, "prompt_id": prompt_id, "sample": number, "kind": "sample", "length": 2}
    row |= {"ref_logprobs": [-1.0, -1.0], "token_kl": [nats / 2, nats / 2], "kl": nats, "accepted": True}
    for name, values in columns.items():
        value = values[number]
        status, message = value if isinstance(value, tuple) else ("missing", None) if value is None else ("ok", None)
        number_ = value if status == "ok" else None
        row |= {f"reward/{name}": number_, f"status/{name}": status, f"message/{name}": message}
    return row


def without(one, **key):
    """A side that lacks the row."""
    keep = ~pl.all_horizontal(pl.col(name) == value for name, value in key.items())
    return replace(one, scores=one.scores.filter(keep), advantages=one.advantages.filter(keep))
