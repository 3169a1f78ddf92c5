"""Stage `diagnose`: policy i-1, rollouts, advantages of iteration i -> gradient_shares.parquet."""

import polars as pl

from stages.common import paths
from stages.common.journal import Journal
from stages.common.logprobs import reads_one_by_one
from stages.common.packing import PackedRow
from stages.common.params import Params
from stages.common.policy import Models
from stages.common.signal import has_advantage
from stages.common.tables import GRADIENT_SHARES, write_table
from stages.diagnose.gradients import gram_matrix
from stages.diagnose.quartiles import QUARTILES, add_quartile, quartile_weights, share_table
from stages.update.batches import micro_batches
from stages.update.rows import step_rows
from stages.update.training_rows import training_rows


def by_quartile(rows: pl.DataFrame, max_tokens: int, *, one_by_one: bool) -> list[PackedRow]:
    """Micro-batches with rows of one quartile each: each then has a gradient in two of the eight losses only."""
    parts = [rows.filter(quartile=number) for number in range(1, QUARTILES + 1)]
    return [packed for part in parts for packed in micro_batches(part, max_tokens, one_by_one=one_by_one)]


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
        journal.progress(done, len(packed), "micro-batches")

    losses = [weights for by_length in (False, True) for weights in quartile_weights(rows, values, by_length=by_length)]
    norms = gram_matrix(model, packed, losses, params.rollout.temperature, progress).diagonal().sqrt().tolist()
    plain, by_length = norms[:QUARTILES], norms[QUARTILES:]
    table = share_table(rows, {"sequence_sum": plain, "response_mean": by_length, "token_mean": plain})
    table = table.with_columns(iteration=pl.lit(paths.iteration_number(name), dtype=pl.Int32))
    write_table(table, GRADIENT_SHARES, ("iteration", "reduction", "quartile"), paths.gradient_shares(name))
    shares = table.filter(reduction="sequence_sum")["share"].to_list()
    journal.say("share of the gradient by length: " + ", ".join("-" if s is None else f"{s:.0%}" for s in shares))
