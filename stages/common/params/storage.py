"""Sections `storage` and `resume`: what of a run stays on disk. Neither changes a byte of a result."""

from typing import Annotated

from pydantic import Field, model_validator

from stages.common.params.base import Count, Section


class Storage(Section):
    """Which policies and optimizer states of finished windows stay; the open window keeps all that it has.

    keep_last   those of so many of the last iterations; null: all stay, and nothing is ever pruned
    keep_every  and those of every so-manyth iteration
    best        and the evaluated one with the highest value in this column of the history, such as eval/reward

    The end of each window stays in any case: the next one starts from it.
    """

    keep_last: Count | None = None
    keep_every: Count | None = None
    best: str | None = None

    @model_validator(mode="after")
    def _needs_keep_last(self) -> "Storage":
        if self.keep_last is None and (self.keep_every is not None or self.best is not None):
            raise ValueError("keep_every and best say what stays beside keep_last: set keep_last too")
        return self


class Resume(Section):
    """Inside a stage, what is finished is kept at most every `every_seconds`, for a run after a kill to go on from."""

    every_seconds: Annotated[float, Field(ge=0)] = 30.0
