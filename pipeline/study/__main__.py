"""The command of the DVC stages of a study: `python -m pipeline.study method back-to-basics rloo_k4`."""

import os
import sys

from pipeline.dvc_files import keep_lock
from pipeline.run_lock import at_work, run_lock
from pipeline.stage import DVC_STAGE, end_with_parent
from pipeline.study.runs.settings import STUDIES, Study, read_study
from pipeline.used import check_used, watched
from stages.common.errors import StageError
from stages.common.files import sweep_partial
from stages.common.journal import Journal, journalled

USAGE = "usage: python -m pipeline.study start|sft|reward_model|method|report STUDY [FLIPS|METHOD]"
PARTS = {"start": 0, "sft": 0, "reward_model": 1, "method": 1, "report": 0}


def run_part(part: str, study: Study, name: str, journal: Journal) -> None:
    """Imports are slow: each part has its own."""
    if part == "method":
        from pipeline.study.runs.method import run_method

        run_method(study, name, journal)
    elif part == "report":
        from pipeline.study.page.report import report

        report(study, journal)
    else:
        from pipeline.study.page.files import check_libraries
        from pipeline.study.runs import start

        check_libraries()

        makers = {"start": start.start, "sft": start.sft}
        makers[part](study) if part in makers else start.reward_model(study, name)


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or PARTS.get(arguments[0]) != len(arguments) - 2:
        print(USAGE, file=sys.stderr)
        return 2
    part, name, *names = arguments
    end_with_parent()

    def work(part: str, title: str) -> int:
        study = read_study(name)
        with at_work(), journalled(part, title) as journal:
            sweep_partial()
            run_part(part, study, "".join(names), journal)
        return 0

    try:
        with run_lock(f"stage {part} of the study {name}"):
            check_used()  # of the stage before this one
            keep_lock(STUDIES / name / "dvc.lock")
            return watched(part, "-".join(["study", name, *names]), work, os.environ.get(DVC_STAGE))
    except StageError as error:
        print(f"study {name}, {' '.join([part, *names])}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
