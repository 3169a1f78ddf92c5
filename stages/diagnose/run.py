"""Stage `diagnose`: policy i-1, rollouts, advantages of iteration i -> gradient_shares.parquet."""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.journal import Journal
from stages.common.logprobs import reads_one_by_one
from stages.common.packing import PackedRow
from stages.common.params import Params
from stages.common.policy import Models
from stages.common.signal import has_advantage
from stages.common.tables import GRADIENT_SHARES, write_table
from stages.diagnose.gradients import Weights, gram_matrix
from stages.diagnose.quartiles import QUARTILES, add_quartile, quartile_weights, share_table
from stages.update.batches import micro_batches
from stages.update.rows import step_rows
from stages.update.training_rows import training_rows


def norms_of(
    model: Any,
    quartiles: Sequence[Sequence[PackedRow]],
    losses: Sequence[Sequence[Weights]],
    temperature: float,
    progress: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """For each kind of loss, of which there is one for each quartile, the norms of the quartiles' gradients."""
    found = [
        gram_matrix(model, packed, of_quartile, temperature, progress).diagonal().sqrt().tolist()
        for packed, of_quartile in zip(quartiles, zip(*losses, strict=True), strict=True)
    ]
    return [list(norms) for norms in zip(*found, strict=True)]


def by_quartile(rows: pl.DataFrame, max_tokens: int, *, one_by_one: bool) -> list[list[PackedRow]]:
    """The micro-batches of each quartile: of all weights no more than two gradients are held at once."""
    parts = [rows.filter(quartile=number) for number in range(1, QUARTILES + 1)]
    return [micro_batches(part, max_tokens, one_by_one=one_by_one) for part in parts]


def run(name: str, params: Params, models: Models, journal: Journal) -> None:
    rows = add_quartile(training_rows(name, needs_reference=False).filter("in_loss")).with_row_index("index")
    model = models.policy(paths.policy(paths.previous(name)))
    packed = by_quartile(
        rows.filter(has_advantage()), params.update.pack_tokens, one_by_one=reads_one_by_one(model, journal)
    )
    values, done = step_rows(rows), 0

    def progress() -> None:
        nonlocal done
        done += 1
        journal.progress(done, sum(map(len, packed)), "micro-batches")

    plain, by_length = (quartile_weights(rows, values, by_length=by_length) for by_length in (False, True))
    norms = norms_of(model, packed, (plain, by_length), params.rollout.temperature, progress)
    table = share_table(rows, {"sequence_sum": norms[0], "response_mean": norms[1], "token_mean": norms[0]})
    table = table.with_columns(iteration=pl.lit(paths.iteration_number(name), dtype=pl.Int32))
    write_table(table, GRADIENT_SHARES, ("iteration", "reduction", "quartile"), paths.gradient_shares(name))
    shares = table.filter(reduction="sequence_sum")["share"].to_list()
    journal.say("share of the gradient by length: " + ", ".join("-" if s is None else f"{s:.0%}" for s in shares))
