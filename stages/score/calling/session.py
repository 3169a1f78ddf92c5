"""Calls of one function, one after the other: an executor that is started when the first call needs it, and again after
one that ended it. A call gives the rows, or a failure that concerns these rows; what is wrong with the function as a
whole is a RewardError.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from stages.score.calling import signatures
from stages.score.calling.cache import Row
from stages.score.calling.function import UserFunction, identity_of
from stages.score.calling.resident import worker_for
from stages.score.calling.signatures import About
from stages.score.calling.worker import RewardError, Worker, call_executor, start_executor

Needs = dict[str, Any]  # columns and seconds, as `told.py` has them


@dataclass(frozen=True)
class Failure:
    """Why a call gave no rows: `status` and `message` of its row; `told` says the same of a function; `option`: of the
    limit that it came over.
    """

    status: str
    message: str
    told: str
    option: str | None = None

    @property
    def limit(self) -> str:
        return "" if self.option is None else f" ({self.option})"


@dataclass
class Session:
    """What calls go through. `identity`: of the function's code; `stack` gives the worker back at the end."""

    function: UserFunction
    identity: dict[str, str]
    stack: ExitStack
    worker: Worker | None = None
    needed: dict[str, float] | None = None  # seconds, once asked for

    def about(self) -> About:
        """The signature: as it was found before, or by starting the executor."""
        known = signatures.known(self.function.spec, self.identity)
        return known if known is not None else self.start()

    def start(self) -> About:
        """An executor that holds the function."""
        function, limits = self.function, self.function.limits
        if self.worker is None:
            self.worker = self.stack.enter_context(worker_for(function.spec, self.identity, limits.memory_mb))
        if self.worker.about is None:
            log = {"log": function.log, "title": f"import of {function.spec}"}
            answer = start_executor(self.worker, function.spec, self._limits(limits.start_seconds), log)
            if self.worker.about is None:
                raise RewardError(self._not_started(answer))
            signatures.keep(function.spec, self.identity, self.worker.about)
        return self.worker.about

    def call(self, inputs: dict[str, Any], count: int, seconds: float, title: str) -> list[Row] | Failure:
        """The rows of one call."""
        function = self.function
        request = {"do": "call", "inputs": inputs, "arguments": dict(function.arguments), "rows": count}
        answer = self._ask(request | {"kind": function.kind}, seconds, title)
        reply = answer.get("reply", {})
        if "verdicts" in reply and len(reply["verdicts"]) == count:
            return [(row[0], row[1], row[2]) for row in reply["verdicts"]]
        if "fault" in reply:
            raise RewardError(f"{function.told} {reply['fault']}")
        return failure(answer, seconds, function, "row_seconds" if count == 1 else "batch_seconds")

    def seconds_for(self, rows: int) -> float:
        """Of a call of so many rows: where no option says it, no less than the function needs."""
        own = self.function.limits_option is None and self.about()["has_needs"]
        if own and self.needed is None:
            found = self.needs()
            self.needed = {} if isinstance(found, Failure) else found["seconds"]
        return max(self.function.seconds_for(rows), (self.needed or {}).get("row" if rows == 1 else "batch", 0.0))

    def check(self) -> Failure | None:
        """The function's own check of its arguments."""
        answer = self._ask_about("check")
        return None if "checked" in answer.get("reply", {}) else self._unanswered(answer)

    def needs(self) -> Needs | Failure:
        """Columns and seconds that the function needs with its arguments (`told.py`)."""
        answer = self._ask_about("needs")
        reply = answer.get("reply", {})
        if "fault" in reply:
            raise RewardError(f"params.yaml: {self.function.told}: {reply['fault']}")
        return reply["needs"] if "needs" in reply else self._unanswered(answer)

    def _ask_about(self, what: str) -> dict[str, Any]:
        request = {"do": what, "arguments": dict(self.function.arguments)}
        return self._ask(request, self.function.limits.start_seconds, what)

    def _unanswered(self, answer: dict[str, Any]) -> Failure:
        return failure(answer, self.function.limits.start_seconds, self.function, "start_seconds")

    def _ask(self, request: dict[str, Any], seconds: float, title: str) -> dict[str, Any]:
        self.start()
        assert self.worker is not None
        log = {"log": self.function.log, "title": title}
        answer = call_executor(self.worker, request, self._limits(seconds), log)
        if answer.get("ended") == "supervisor":
            self.worker = None  # the next call has another
            self.stack.close()  # and what is left of this one is ended now
        return answer

    def _limits(self, seconds: float) -> dict[str, Any]:
        return {"seconds": seconds, "memory_mb": self.function.limits.memory_mb}

    def _not_started(self, answer: dict[str, Any]) -> str:
        function = self.function
        if "fault" in answer.get("reply", {}):
            return (
                f"params.yaml: {function.told}: {answer['reply']['fault']} (traceback in {function.log}); give a "
                "function that can be imported, as module:function or path/to/file.py:function"
            )
        why = self._unanswered(answer)
        return (
            f"params.yaml: {function.told} {why.told} while it was imported{why.limit}; what it printed is in "
            f"{function.log}"
        )


@contextmanager
def session(function: UserFunction) -> Iterator[Session]:
    with ExitStack() as stack:
        yield Session(function, identity_of(function), stack)


def failure(answer: dict[str, Any], seconds: float, function: UserFunction, limit: str) -> Failure:
    """What a reply without rows, or the end of the process, is called in the scores table. `limit`: the option that
    `seconds` are from.
    """
    reply = answer.get("reply", {})
    if "raised" in reply:
        return Failure("error", reply["raised"], f"raised {reply['raised']}")
    ended = "memory" if reply.get("memory") else answer.get("ended")
    if ended == "timeout":
        return _limited("timeout", "took more than", f"{seconds:g} s", function.option_of(limit))
    if ended == "memory":
        most = f"{function.limits.memory_mb} MB"
        return _limited("error", "used more than", most, function.option_of("memory_mb"))
    if ended == "exit":
        return _process(f"ended with exit status {answer['status']}")
    if ended == "signal":
        return Failure("error", f"killed by {answer['name']}", f"was killed by {answer['name']}")
    if ended == "supervisor":
        return _process("was ended from outside, with the process that watches over it")
    return _process("wrote over what it is asked by, and was ended")


def _limited(status: str, did: str, most: str, option: str) -> Failure:
    message = f"{did} {most}".removeprefix("took ")
    return Failure(status, message, f"{did} {most}", option)


def _process(what: str) -> Failure:
    return Failure("error", f"the process {what}", f"had a process that {what}")
