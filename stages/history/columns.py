"""The columns of the history and their order, which does not depend on where a run is cut into windows.

A column that an iteration brings for the first time comes after the one before it in that iteration's row. Evaluation
columns come after those of training, and `alarms` last.
"""

from collections.abc import Iterable, Sequence

IN_FRONT, ALARMS, EVALUATION = "iteration", "alarms", "eval/"


def ordered_columns(rows: Iterable[Iterable[str]]) -> list[str]:
    """Of rows in the order of their iterations, each with its columns in their order."""
    training: list[str] = []
    evaluation: list[str] = []
    seen = set[str]()
    for row in rows:
        names = [name for name in row if name not in (IN_FRONT, ALARMS)]
        if seen.issuperset(names):
            continue
        _add(training, [name for name in names if not name.startswith(EVALUATION)])
        _add(evaluation, [name for name in names if name.startswith(EVALUATION)])
        seen.update(names)
    return [IN_FRONT, *training, *evaluation, ALARMS]


def _add(known: list[str], names: Sequence[str]) -> None:
    place = 0
    for name in names:
        if name in known:
            place = known.index(name) + 1
        else:
            known.insert(place, name)
            place += 1
