"""`prepare prompts`: prompts.parquet, and prompts.json that says what was found in them.

Everything about the prompts is checked here, before anything is sampled. A check that fails leaves the files as they
are.
"""

from functools import partial
from typing import Any

import polars as pl

from stages.common import paths
from stages.common.errors import StageError
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Columns, Params, Prompts
from stages.common.policy import load_tokenizer
from stages.common.positions import positions_in
from stages.common.tables import PROMPTS, write_table
from stages.common.write_json import write_json
from stages.prepare.prompts import datasets_source, embedded, files, golden, gym
from stages.prepare.prompts.assemble import PLACE, ROW, together
from stages.prepare.prompts.columns import Part
from stages.prepare.prompts.lengths import check_left, fitting, limit_of, refuse_too_long
from stages.prepare.prompts.render import add_rendered, template_notes
from stages.prepare.prompts.report import SPLITS, report
from stages.prepare.prompts.split import check_apart, hold_out, take, with_ids

SHOWN = 10


def run(params: Params, journal: Journal) -> None:
    settings, tokenizer, positions = params.prepare.prompts, load_tokenizer(paths.BASE), positions_in(paths.BASE)
    limit = limit_of(params, positions)
    source, columns = source_of(settings)
    option = f"prepare.prompts.{source}"
    training, heldout = parts_of(settings, params.seed)
    rows = add_rendered(together(training, heldout, option), tokenizer, settings, journal)
    rows = with_ids(rows if heldout is not None else split(rows, params, columns, limit, option))
    rows, dropped = within(rows, params, limit, positions)
    check_apart(rows)
    rows = taken(rows, columns, split_by_hash=heldout is None, seed=params.seed, option=option)
    parts = {"train": training} if heldout is None else {"train": training, "heldout": heldout}
    notes = [note for part in parts.values() for note in part.notes] + template_notes(rows, tokenizer, settings)
    rows, failed, verified = verified_rows(rows, params, tokenizer)
    table = rows.drop(PLACE, ROW).sort("prompt_id")
    resolved = {name: part.resolved for name, part in parts.items() if part.resolved}
    told = partial(report, limit=limit, dropped=[*dropped, *failed], golden=verified, notes=notes, resolved=resolved)
    finish(table, told(table, settings, source=source), journal)


def finish(table: pl.DataFrame, found: dict[str, Any], journal: Journal) -> None:
    """Publish the table and the report."""
    write_table(table, PROMPTS, ("prompt_id",), paths.PROMPTS)
    with publish(paths.PROMPTS_JSON) as scratch:
        write_json(found, scratch)
    tell(found, journal)


def split(rows: pl.DataFrame, params: Params, columns: Columns | None, limit: int | None, option: str) -> pl.DataFrame:
    """Some of the rows are held out, of those that stay if the long ones are dropped."""
    assert columns is not None
    assert columns.heldout_prompts is not None
    usable = fitting(rows, limit if params.prepare.prompts.too_long == "drop" else None)
    return hold_out(rows, usable, columns.heldout_prompts, params.seed, option)


def within(
    rows: pl.DataFrame, params: Params, limit: int | None, positions: int | None
) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The rows within the limit, and what was dropped; an error if none may be dropped and one would be."""
    if params.prepare.prompts.too_long == "refuse":
        refuse_too_long(rows, limit, params, positions)
    return without_long(rows, limit)


def source_of(settings: Prompts) -> tuple[str, Columns | None]:
    """The name of the source, and how its columns are read where they are the user's."""
    of_users = {"file": settings.file, "dataset": settings.dataset}
    for name, columns in of_users.items():
        if columns is not None:
            return name, columns
    return ("gym" if settings.gym is not None else "embedded"), None


def parts_of(settings: Prompts, seed: int) -> tuple[Part, Part | None]:
    """What is trained on, and what is held out; None: some of the first is to be held out."""
    if settings.file is not None:
        return files.parts(settings.file)
    if settings.dataset is not None:
        return datasets_source.parts(settings.dataset)
    if settings.gym is not None:
        return gym.parts(settings.gym)
    assert settings.embedded is not None
    return embedded.parts(settings.embedded, seed)


def without_long(rows: pl.DataFrame, limit: int | None) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The rows within the limit, and what to report of the others."""
    fits = fitting(rows, limit)
    lengths = pl.col("prompt_ids").list.len().alias("tokens")
    over = rows.filter([not one for one in fits]).select("prompt_id", lengths).sort("prompt_id")
    kept = rows.filter(fits)
    check_left(
        kept, SPLITS, f"all of it have more than {limit} tokens; raise prepare.prompts.max_tokens, or shorten them"
    )
    return kept, [{"why": f"more than {limit} tokens", **row} for row in over.to_dicts()]


def taken(rows: pl.DataFrame, columns: Columns | None, *, split_by_hash: bool, seed: int, option: str) -> pl.DataFrame:
    """As many of each split as are asked for."""
    if columns is None:
        return rows
    rows = take(rows, "train", columns.train_prompts, seed, option)
    return rows if split_by_hash else take(rows, "heldout", columns.heldout_prompts, seed, option)


def verified_rows(
    rows: pl.DataFrame, params: Params, tokenizer: Any
) -> tuple[pl.DataFrame, list[dict[str, Any]], dict[str, Any] | None]:
    """The rows that stay, what was dropped, and what to report of the golden answers (None: they are not verified)."""
    verify = params.prepare.prompts.verify
    if verify is None:
        return rows, [], None
    failing = golden.failures(rows, verify, params, tokenizer)
    told: dict[str, Any] = {"checked": rows.height, "failing": failing.to_dicts()}
    if failing.is_empty() or verify.failing == "report":
        return rows, [], told
    if verify.failing == "refuse":
        raise StageError(golden.refusal(failing, rows.height))
    kept = rows.filter(~pl.col("prompt_id").is_in(failing["prompt_id"].to_list()))
    check_left(kept, SPLITS, f"no golden answer gets the full reward; first: {failing.row(0)[1]}")
    return kept, [{"why": "golden answer fails", **row} for row in failing.to_dicts()], told


def tell(found: dict[str, Any], journal: Journal) -> None:
    """The essentials of the report."""
    counts, longest = found["prompts"], found["longest"]
    journal.say(
        f"{counts['train']} training prompts, {counts['heldout']} held out; longest prompt {longest['tokens']} tokens "
        f"({longest['prompt_id']})"
    )
    for note in found["notes"]:
        journal.say(note)
    for split, count in found["duplicates"].items():
        if count:
            journal.say(f"{count} {split} prompts repeat another one; each counts")
    if found["golden"] is not None:
        failing = found["golden"]["failing"]
        journal.say(
            f"{len(failing)} of {found['golden']['checked']} golden answers do not get the full reward{_first(failing)}"
        )
    if found["dropped"]:
        ids = [row["prompt_id"] for row in found["dropped"]]
        more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
        journal.say(f"dropped {len(ids)}: {', '.join(ids[:SHOWN])}{more}; {paths.PROMPTS_JSON} says why")


def _first(failing: list[dict[str, str]]) -> str:
    return f"; first: {failing[0]['prompt_id']}: {failing[0]['message']}" if failing else ""
