"""Files of params as DVC reads them, several times for each stage: the same text is parsed once.

DVC chooses by its suffix what loads such a file. Its parser takes ten milliseconds for what a stage needs of one.
"""

from copy import deepcopy
from functools import lru_cache
from typing import Any

from dvc.utils.serialize import LOADERS, load_yaml, parse_yaml

TEXTS = 64  # of params.yaml and of the plan, as each kind of stage is shown them


def remember_texts() -> None:
    """From now on, in this process."""
    LOADERS[".yaml"] = load


def load(path: str, fs: Any = None, **options: Any) -> Any:
    """The content of a file, as DVC's own loader gives it; the caller's to change."""
    try:
        with (open if fs is None else fs.open)(path, encoding="utf-8", **options) as file:
            text = file.read()
    except UnicodeDecodeError:
        return load_yaml(path, fs=fs, **options)  # which tells of it
    return deepcopy(_parsed(text, str(path)))


@lru_cache(maxsize=TEXTS)
def _parsed(text: str, path: str) -> Any:
    return parse_yaml(text, path)
