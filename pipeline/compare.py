"""`rloo compare`: estimators on one iteration's scores, row by row, and the gradients they imply on its policy."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import polars as pl
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from pipeline.windows.present import check_policy_files, check_tables
from stages.advantage.moving_average import Carried, carry_on
from stages.common import paths
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.params import Estimator, Params, ParamsError
from stages.common.tables import KEY, SCORES, read_table
from stages.compare.side_by_side import advantage_tables, side_by_side, with_estimator

if TYPE_CHECKING:
    from torch import Tensor

SCORE_TOLERANCE = 1e-9


def check_names(names: Sequence[str], params: Params, scores: pl.DataFrame) -> None:
    """Refuse what cannot be compared, before anything is computed."""
    known = get_args(Estimator)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise StageError(f"--estimators: no estimator {', '.join(unknown)}; there are {', '.join(known)}")
    if len(set(names)) < max(2, len(names)):
        raise StageError(f"--estimators {','.join(names)}: a comparison takes two or more different ones")
    if "remax" in names and scores.filter(kind="greedy").is_empty():
        raise StageError(
            "remax compares with greedy completions, and this iteration has none: set rollout.greedy to true in "
            "params.yaml and run `dvc repro`, or leave remax out"
        )
    if "gae" in names and scores["values"].null_count():
        raise StageError(
            "gae takes the values of a critic, and the scores of this iteration have none: train with a section "
            "`critic` in params.yaml, or leave gae out"
        )
    for name in names:
        try:
            with_estimator(params, name)
        except ValidationError as error:
            reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            raise ParamsError(f"params.yaml, with advantage.estimator {name}: {reason}") from None


def check_scores_belong(scores: pl.DataFrame, name: str, params: Params) -> None:
    """Refuse scores that were made with another KL penalty than params.yaml has: a comparison would mix the two."""
    kl = params.score.kl
    beta = kl.beta_in("reward")
    expected = pl.col("task_reward") - (beta * pl.col("kl") if beta else 0.0)
    without = kl.beta > 0 and scores["kl"].null_count() > 0  # made with beta 0: there was no reference
    if without or scores.filter((pl.col("score") - expected).abs() > SCORE_TOLERANCE).height:
        raise StageError(
            f"{paths.scores(name)} was made with another penalty than score.kl in params.yaml (beta {kl.beta}, "
            f"placement {kl.placement}): set it back, or bring the scores up to date with `dvc repro score@{name}`"
        )


def past_of(name: str, params: Params) -> Carried:
    """What a moving average carries into the iteration: computed from the scores of those before, whatever estimator
    trained them.
    """
    carried: Carried = []
    if params.advantage.estimator == "moving_average":
        for number in range(1, paths.iteration_number(name)):
            scores = read_table(paths.scores(paths.iteration_name(number)), SCORES, KEY)
            carried = carry_on(carried, scores.filter("in_baseline")["score"], params.advantage.moving_average)
    return carried


def gradient_cosines(name: str, tables: dict[str, pl.DataFrame], params: Params, console: Console) -> "Tensor":
    """Cosines [E, E] between the gradients, on the policy that sampled, under the reduction of params.yaml."""
    from stages.common.logprobs import takes_block_mask
    from stages.compare.weights import compared_rows, loss_weights
    from stages.diagnose.gradients import cosines, gram_matrix
    from stages.entry import models_of
    from stages.update.batches import micro_batches

    rows = compared_rows(name, tables)
    losses = [loss_weights(rows, table, params.update) for table in tables.values()]
    model = models_of(params.compute).policy(paths.policy(paths.previous(name)))
    packed = micro_batches(rows, params.update.pack_tokens, one_by_one=not takes_block_mask(model))
    done, text = 0, f"gradients of {len(losses)} losses on {paths.policy(paths.previous(name))}"
    with console.status(text) as status:

        def progress() -> None:
            nonlocal done
            done += 1
            status.update(f"{text}: {done}/{len(packed)} micro-batches")

        return cosines(gram_matrix(model, packed, losses, params.rollout.temperature, progress))


def compare(
    console: Console, name: str, names: Sequence[str], params: Params, *, gradients: bool, out: Path | None
) -> None:
    """Compute, print and write the comparison."""
    check_tables(name)
    if gradients:
        check_policy_files(paths.previous(name))
    scores = read_table(paths.scores(name), SCORES, KEY)
    check_names(names, params, scores)
    check_scores_belong(scores, name, params)
    tables = advantage_tables(scores, names, params, lambda own: past_of(name, own))
    frame = side_by_side(scores, tables)
    target = out or paths.DATA / "compare" / f"{name}.parquet"
    with publish(target) as scratch:
        frame.write_parquet(scratch)
    _print_rows(console, name, names, frame, tables)
    console.print(f"{target}: one row per completion, a column per estimator", markup=False, highlight=False)
    if gradients:
        found = gradient_cosines(name, tables, params, console)
        _print_cosines(console, names, found, params)
        beside = target.with_suffix(".cosines.csv")
        with publish(beside) as scratch:
            pl.DataFrame({"estimator": names} | dict(zip(names, found.T.tolist(), strict=True))).write_csv(scratch)
        console.print(f"{beside}: these cosines; KL and entropy inside the loss are no part of them", markup=False)


def _print_rows(
    console: Console, name: str, names: Sequence[str], frame: pl.DataFrame, tables: dict[str, pl.DataFrame]
) -> None:
    table = Table(title=f"{name}: {frame.filter(kind='sample').height} completions, the same for all")
    for title in ("estimator", "in the loss", "above 0", "below 0", "mean |A|", "max |A|", f"sign unlike {names[0]}"):
        named = title == "estimator"
        table.add_column(title, justify="left" if named else "right", no_wrap=named)
    for one in names:
        advantage = tables[one].filter("in_loss")["advantage"].to_numpy()
        changes = "" if one == names[0] else str(frame[f"sign_change/{one}"].sum())
        counts = (len(advantage), int((advantage > 0).sum()), int((advantage < 0).sum()))
        sizes = (abs(advantage).mean(), abs(advantage).max()) if len(advantage) else (0.0, 0.0)
        table.add_row(one, *map(str, counts), *(f"{size:z.3f}" for size in sizes), changes)
    console.print(table)


def _print_cosines(console: Console, names: Sequence[str], cosines_EE: "Tensor", params: Params) -> None:
    table = Table(title=f"Cosine between the gradients, reduction {params.update.reduction}")
    table.add_column("", no_wrap=True)
    for one in names:
        table.add_column(one, justify="right", overflow="fold")
    for one, row in zip(names, cosines_EE.tolist(), strict=True):
        table.add_row(one, *("none" if math.isnan(value) else f"{value:z.3f}" for value in row))
    console.print(table)
