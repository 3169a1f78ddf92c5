"""Prompts from the library `datasets`: a folder that it saved, a folder of data files that it reads, or a hub id."""

import re
from pathlib import Path
from typing import Any

import polars as pl

from stages.common.params import ParamsError, PromptDataset
from stages.prepare.prompts.columns import Part, part_of_table

OPTION = "prepare.prompts.dataset"
COMMIT = re.compile(r"@([0-9a-f]{40})(?:/|$)")
SAVED = ("dataset_dict.json", "state.json")  # of a folder that save_to_disk wrote


def parts(settings: PromptDataset) -> tuple[Part, Part | None]:
    """The training split, and the held-out split if there is one."""
    heldout = None if settings.heldout_split is None else part(settings, settings.heldout_split, "heldout_split")
    return part(settings, settings.train_split, "train_split"), heldout


def part(settings: PromptDataset, split: str, option: str) -> Part:
    library = _library()
    folder = Path(settings.path)
    if any((folder / name).is_file() for name in SAVED):
        found = _saved(library, settings, split, option)
    else:
        found = _loaded(library, settings, split)
    made = part_of_table(_table(found), f"{settings.path} ({split})", OPTION, settings)
    if not folder.exists():
        made.resolved.update(resolved_of(found))
    if folder.is_dir() and not any((folder / name).is_file() for name in SAVED):
        made.notes.append(f"{made.place}: the types of its columns are those that the library datasets reads")
    return made


def resolved_of(dataset: Any) -> dict[str, str]:
    """The commit of a hub dataset, by the addresses that it was read from, and the split's fingerprint."""
    sources = getattr(dataset.info, "download_checksums", None) or {}
    commits = sorted({found[1] for source in sources if (found := COMMIT.search(str(source)))})
    fingerprint = getattr(dataset, "_fingerprint", None)
    named = {"commit": ", ".join(commits), "fingerprint": str(fingerprint or "")}
    return {name: value for name, value in named.items() if value}


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise ParamsError(
            f"params.yaml: {OPTION}: the library datasets is not installed; pip install 'rloo-pipeline[datasets]', or "
            "name plain files in prepare.prompts.file"
        ) from None
    datasets.disable_progress_bars()
    return datasets


def _saved(library: Any, settings: PromptDataset, split: str, option: str) -> Any:
    """A split of a folder that save_to_disk wrote; a single dataset there is the training split."""
    for name in ("name", "revision"):
        if getattr(settings, name) is not None:
            raise ParamsError(f"params.yaml: {OPTION}.{name}: {settings.path} is a folder, which has none; null it")
    try:
        found = library.load_from_disk(settings.path)
    except Exception as error:
        raise _refused(settings, error) from None
    splits = list(found) if isinstance(found, library.DatasetDict) else ["train"]
    if split not in splits:
        raise ParamsError(
            f"params.yaml: {OPTION}.{option} = {split!r}: {settings.path} has only {', '.join(map(repr, splits))}"
        )
    return found[split] if isinstance(found, library.DatasetDict) else found


def _loaded(library: Any, settings: PromptDataset, split: str) -> Any:
    try:
        return library.load_dataset(settings.path, settings.name, split=split, revision=settings.revision)
    except Exception as error:  # of many libraries: the hub's, the file system's, the readers'
        raise _refused(settings, error) from None


def _refused(settings: PromptDataset, error: Exception) -> ParamsError:
    told = " ".join(str(error).split())[:300]
    where = f"params.yaml: {OPTION}.path = {settings.path!r}"
    return ParamsError(
        f"{where}: cannot be loaded: {type(error).__name__}: {told}; it has to be a folder that `save_to_disk` wrote, "
        "a folder of data files, or a hub id that can be reached (or is in the cache); name, revision and splits have "
        "to exist"
    )


def _table(dataset: Any) -> pl.DataFrame:
    """The rows in their order, as the library holds them."""
    table = pl.from_arrow(dataset.with_format("arrow")[:])
    assert isinstance(table, pl.DataFrame)
    return table
