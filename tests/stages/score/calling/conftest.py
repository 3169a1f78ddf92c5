"""Fixtures of this folder."""

from tests.stages.score.calling.code import code

__all__ = ["code"]
