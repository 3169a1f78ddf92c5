"""Prompts from the user's files."""

from pathlib import Path

from stages.common.params import PromptFile
from stages.common.rows import read_parquet, read_rows
from stages.prepare.prompts.columns import Part, part_of_rows, part_of_table

OPTION = "prepare.prompts.file"


def parts(settings: PromptFile) -> tuple[Part, Part | None]:
    """The training file, and the held-out file if there is one."""
    heldout = None if settings.heldout is None else part(Path(settings.heldout), settings)
    return part(Path(settings.train), settings), heldout


def part(path: Path, settings: PromptFile) -> Part:
    if path.suffix.lower() == ".parquet":
        return part_of_table(read_parquet(path), str(path), OPTION, settings)
    return part_of_rows(read_rows(path), str(path), OPTION, settings, texts=path.suffix.lower() == ".csv")
