"""The summary of a run: the few numbers that experiments are compared by, and the only metric that DVC knows.

`dvc exp show` has a column for each number of each metric. What an iteration or an evaluation holds beside these is in
the history and in its own files.
"""

from collections.abc import Iterable

import polars as pl

TRAINED = ("reward", "kl", "entropy", "completions/mean_length")
EVALUATED = ("eval/reward", "eval/reward_low", "eval/reward_high", "eval/kl", "eval/completions/mean_length")
JUDGED = "judge/win_rate"

Summary = dict[str, float | int]


def summary(history: pl.DataFrame, measured: Iterable[str] = ()) -> Summary:
    """Of the last iteration `reward`, `kl`, ...; of the last evaluation `eval/...` and `eval/gain`, the gain in
    held-out reward over the initial policy. `measured` are the rewards that are evaluated and not trained on.

    A number that a run does not have, such as a win-rate without a judge, is left out. Nothing is rounded.
    """
    last = history.row(-1, named=True)
    counts = {"iterations": last["iteration"], "num_tokens": last.get("num_tokens")}
    named = [*EVALUATED, *(f"eval/rewards/{name}/mean" for name in measured), JUDGED]
    evaluated = history.filter(pl.col("eval/reward").is_not_null()) if "eval/reward" in history.columns else None
    found = {**counts, **{name: last.get(name) for name in TRAINED}}
    if evaluated is not None and evaluated.height:
        row = evaluated.row(-1, named=True)
        found |= {"eval/iteration": row["iteration"], **{name: row.get(name) for name in named}}
        first = evaluated.row(0, named=True)
        if first["iteration"] == 0 and row["iteration"] > 0:
            found["eval/gain"] = row["eval/reward"] - first["eval/reward"]
    return {name: value for name, value in found.items() if value is not None}
