"""The command of the DVC stages of a study: `python -m pipeline.study method back-to-basics rloo_k4`."""

import sys

from pipeline.stage import exit_with_parent
from pipeline.study.runs.settings import Study, read_study
from stages.common.errors import StageError
from stages.common.files import sweep_partial
from stages.common.journal import Journal, journalled

USAGE = "usage: python -m pipeline.study start|sft|reward_model|method|report STUDY [FLIPS|METHOD]"
PARTS = {"start": 0, "sft": 0, "reward_model": 1, "method": 1, "report": 0}


def run_part(part: str, study: Study, name: str, journal: Journal) -> None:
    from pipeline.study.page import report
    from pipeline.study.runs import method, start  # slow imports, and some parts need few of them

    match part:
        case "start":
            start.start(study)
        case "sft":
            start.sft(study)
        case "reward_model":
            start.reward_model(study, name)
        case "method":
            method.run_method(study, name, journal)
        case "report":
            report.report(study, journal)


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or PARTS.get(arguments[0]) != len(arguments) - 2:
        print(USAGE, file=sys.stderr)
        return 2
    part, name, *names = arguments
    exit_with_parent()
    try:
        study = read_study(name)
        with journalled(part, "-".join(["study", name, *names])) as journal:
            sweep_partial()
            run_part(part, study, "".join(names), journal)
    except StageError as error:
        print(f"study {name}, {' '.join([part, *names])}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
