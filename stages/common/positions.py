"""How many tokens a model can read, by its config."""

from pathlib import Path
from typing import Any

from stages.common.model_folder import load_config

NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "n_ctx")


def positions_of(config: Any) -> int | None:
    """Prompt and answer together; None: the config does not say, as of models without positions."""
    text = config.get_text_config()
    found = (getattr(text, name, None) for name in NAMES)
    return next((count for count in found if isinstance(count, int) and count > 0), None)


def positions_in(folder: Path) -> int | None:
    """The same of a model folder."""
    return positions_of(load_config(folder))
