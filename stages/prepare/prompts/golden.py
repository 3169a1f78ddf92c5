"""Golden answers against their own verifier: what is scored as if the model had said it should get the full reward.

A golden answer that does not is a wrong answer in the data, or a verifier that cannot read right ones.
"""

import string
from typing import Any

import polars as pl

from stages.common.params import Params, ParamsError, Verify
from stages.common.tables import EQUAL, GENERATIONS, ROLLOUTS
from stages.score.rewards import reward_columns, reward_inputs

OPTION = "prepare.prompts.verify"
SHOWN = 10
PRIVATE = ("_place", "_row")


def failures(rows: pl.DataFrame, verify: Verify, params: Params, tokenizer: Any) -> pl.DataFrame:
    """`prompt_id` and `message` of the prompts whose golden answer does not get the full reward."""
    names = fields(verify.completion, rows.columns)
    incomplete = pl.any_horizontal(pl.col(name).is_null() for name in names) if names else pl.lit(value=False)
    whole = rows.filter(~incomplete)
    told = [
        {"prompt_id": row["prompt_id"], "message": f"{', '.join(name for name in names if row[name] is None)} is null"}
        for row in rows.filter(incomplete).select("prompt_id", *names).iter_rows(named=True)
    ]
    if not whole.is_empty():
        told += _scored(whole, names, verify, params, tokenizer)
    return pl.DataFrame(told, schema={"prompt_id": pl.String, "message": pl.String}).sort("prompt_id")


def fields(completion: str, columns: list[str]) -> list[str]:
    """The columns that the text names in braces; a ParamsError if one is unknown or the braces are wrong."""
    known = [name for name in columns if name not in ROLLOUTS or name == "prompt_id"]
    known = [name for name in known if name not in PRIVATE]
    try:
        found = [name for _, name, _, _ in string.Formatter().parse(completion) if name is not None]
    except ValueError as error:
        raise ParamsError(
            f"params.yaml: {OPTION}.completion = {completion!r}: {error}; write {{{{ for a brace"
        ) from None
    for name in found:
        if name not in known:
            raise ParamsError(
                f"params.yaml: {OPTION}.completion: prompts have no column {name!r}; they have {', '.join(known)} "
                "(and {{ is a brace)"
            )
    return list(dict.fromkeys(found))


def _scored(
    rows: pl.DataFrame, names: list[str], verify: Verify, params: Params, tokenizer: Any
) -> list[dict[str, str]]:
    texts = [_text(verify.completion, row) for row in rows.select("prompt_id", *names).iter_rows(named=True)]
    inputs = reward_inputs(_as_rollouts(rows.drop(PRIVATE), texts, tokenizer))
    found = reward_columns({verify.reward: params.score.rewards[verify.reward]}, inputs)
    columns = [rows["prompt_id"], *(found[f"{what}/{verify.reward}"] for what in ("reward", "status", "message"))]
    told = []
    for text, prompt_id, reward, status, message in zip(texts, *columns, strict=True):
        if reward is None or reward < verify.full - EQUAL:
            why = f"{status}: {message}" if reward is None else f"reward {reward:g} of {verify.full:g}"
            told.append({"prompt_id": prompt_id, "message": f"{why}; golden answer: {text[-80:]!r}"})
    return told


def _text(completion: str, row: dict[str, Any]) -> str:
    try:
        return completion.format(**row)
    except (ValueError, TypeError) as error:
        raise ParamsError(f"params.yaml: {OPTION}.completion: {error} (prompt {row['prompt_id']})") from None


def _as_rollouts(rows: pl.DataFrame, texts: list[str], tokenizer: Any) -> pl.DataFrame:
    """The golden answers as rows of the rollouts table, with the prompts' columns. -1: of no iteration."""
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    said = pl.DataFrame(
        {"completion": texts, "completion_ids": ids, "length": [len(tokens) for tokens in ids]},
        schema={name: (ROLLOUTS | GENERATIONS)[name] for name in ("completion", "completion_ids", "length")},
    )
    known: dict[str, Any] = {"iteration": -1, "sample": 0, "kind": "sample", "finish_reason": "stop", "accepted": True}
    others = {
        name: pl.lit(known.get(name), dtype=dtype) for name, dtype in ROLLOUTS.items() if name not in said.columns
    }
    del others["prompt_id"]
    return rows.hstack(said).with_columns(**others)


def refusal(failing: pl.DataFrame, checked: int) -> str:
    """What to say if failing golden answers are not accepted."""
    shown = [f"{prompt_id}: {message}" for prompt_id, message in failing.head(SHOWN).iter_rows()]
    more = f"; and {failing.height - SHOWN} more" if failing.height > SHOWN else ""
    return (
        f"{failing.height} of {checked} golden answers do not get the full reward from their own verifier: "
        f"{'; '.join(shown)}{more}; correct them, or set {OPTION}.failing to drop or report in params.yaml"
    )
