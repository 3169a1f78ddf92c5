"""Columns that functions receive by name: some rows of them, and how messages name a row."""

from collections.abc import Sequence
from typing import Any

Inputs = dict[str, list[Any]]
ROWS = "completions"  # the column that says how many rows there are
KEY = ("prompt_id", "sample")


def part_of(inputs: Inputs, places: Sequence[int]) -> Inputs:
    return {name: [column[place] for place in places] for name, column in inputs.items()}


def key_of_row(inputs: Inputs, row: int) -> str:
    """`prompt_id p3, sample 0`, as far as the inputs say it."""
    known = [f"{name} {inputs[name][row]}" for name in KEY if name in inputs]
    return ", ".join(known) or f"row {row}"
