"""All rows of one function: in calls of so many rows, and one by one where a call fails (`one_call.py`).

Rows that fail have the status `error` or `timeout`, the others are scored. Calls are made in the order of the rows, and
finished ones kept (`cache.py`), so that a run that is killed goes on where it was.
"""

from collections.abc import Iterator

from stages.common.params import ParamsError
from stages.score.calling.cache import Row
from stages.score.calling.function import UserFunction
from stages.score.calling.inputs import ROWS, Inputs, key_of_row
from stages.score.calling.one_call import Call, one_call
from stages.score.calling.session import Failure, Session, session
from stages.score.calling.threshold import check_failed, error_of, failed
from stages.score.calling.worker import RewardError


def call_rows(function: UserFunction, inputs: Inputs, max_failed: float | None = None) -> list[Row]:
    """Value, status and message of each row; a RewardError if the function is wrong as a whole, or if the share of
    failed rows is over `max_failed` (None: any may fail).
    """
    refuse_columns_as_arguments(function, set(inputs))
    count = len(inputs[ROWS])
    if count == 0:
        return []
    rows: list[Row] = []
    failures: list[Failure] = []
    with session(function) as open_session:
        for start, stop in calls(open_session, inputs, count):
            for found in one_call(Call(open_session, inputs, list(range(start, stop)))):
                rows.append(outcome(found))
                if isinstance(found, Failure):
                    failures.append(found)
                if rows[-1][1] == "timeout":  # too slow to go on if the run is to stop anyway
                    check_failed(function.told, function.log, rows, inputs, max_failed, count, limits_of(failures))
    refuse_if_all_failed(function, inputs, rows, failures)
    check_failed(function.told, function.log, rows, inputs, max_failed, count, limits_of(failures))
    return rows


def refuse_columns_as_arguments(function: UserFunction, columns: set[str]) -> None:
    twice = sorted(set(function.arguments) & columns)
    if twice:
        raise ParamsError(
            f"params.yaml: {function.arguments_option}: {twice} are columns that the function receives anyway; give "
            "the arguments other names"
        )


def calls(open_session: Session, inputs: Inputs, count: int) -> Iterator[tuple[int, int]]:
    """First row and end of each call."""
    function, about = open_session.function, open_session.about()
    given = [*inputs, *function.arguments]
    unexpected = [name for name in given if name not in about["parameters"] and not about["takes_all"]]
    missing = [name for name in about["required"] if name not in given]
    if unexpected:
        raise RewardError(
            f"{function.told} got an unexpected keyword argument {unexpected[0]!r}; it has to take every column: add "
            "**columns to its parameters"
        )
    if missing:
        raise RewardError(
            f"{function.told} needs {', '.join(missing)}, neither a column nor one of its arguments; there are "
            f"{', '.join(sorted(given))}"
        )
    size = function.rows_per_call or about["rows_per_call"] or count
    yield from ((start, min(count, start + size)) for start in range(0, count, size))


def outcome(found: Row | Failure) -> Row:
    return (None, found.status, found.message) if isinstance(found, Failure) else found


def limits_of(failures: list[Failure]) -> list[str]:
    """Options of the limits that were too low, each once."""
    return list(dict.fromkeys(failure.option for failure in failures if failure.option is not None))


def refuse_if_all_failed(function: UserFunction, inputs: Inputs, rows: list[Row], failures: list[Failure]) -> None:
    """A function that fails on every row is wrong as a whole. Of a single row that cannot be said."""
    if len(rows) > 1 and all(row[1] == "error" for row in rows):
        why = f"{failures[0].told}{failures[0].limit}" if failures else f"said of its rows: {rows[0][2]}"
        raise error_of(rows)(
            f"{function.told} {why}, and failed on all {len(failed(rows))} rows; the first is "
            f"{key_of_row(inputs, 0)}; its traceback and what it printed are in {function.log}"
        )
