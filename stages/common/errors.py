"""Errors that a user can mend. Front doors print their message without a traceback."""


class StageError(ValueError):
    """Wrong input, options or files; the message names the place and the remedy."""
