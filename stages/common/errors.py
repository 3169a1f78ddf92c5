"""Errors that a user can mend. Front doors print their message without a traceback."""


class StageError(ValueError):
    """Wrong input, options or files; the message names the place and the remedy."""


class TransientError(StageError):
    """What may be gone at the next try, and nothing here can mend: a server that is lost, a process that was killed."""
