"""Where a study's page lies, and what drawing it takes."""

from importlib.util import find_spec
from pathlib import Path

from pipeline.study.runs.settings import Study
from stages.common.errors import StageError


def report_folder(study: Study) -> Path:
    return study.folder / "report"


def report_file(study: Study) -> Path:
    return report_folder(study) / "README.md"


def check_libraries() -> None:
    """Told before hours of runs: plots need a library of their own."""
    if find_spec("matplotlib") is None:
        raise StageError("a study draws plots with matplotlib: pip install -e '.[study]'")
