"""DVC in a command that speaks for itself."""

import logging

LIBRARIES = ("dvc", "dvc_data", "dvc_objects")  # each has a logger of its own, and shows bars by its level


def quiet() -> None:
    """From now on, in this process, no lines of DVC, and no bars on a terminal: they would lie among the command's."""
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.CRITICAL)
