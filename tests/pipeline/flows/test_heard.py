"""A stage that failed is told from a process that was killed, and from a server that was lost."""

import os
import subprocess
import sys

import pytest

from pipeline.door import StageFailedError
from pipeline.flows.heard import Heard
from stages.common.errors import StageError, TransientError

STARTED = {"event": "started", "pid": os.getpid(), "time": 1.0}
FAILURE = StageFailedError("rollout@i0003: failed to run")


def judged(*records, status=None):
    heard = Heard()
    heard.hear(list(records))
    return heard.judged(FAILURE, status)


@pytest.mark.parametrize(
    "records",
    [
        (),  # it did not get as far as starting: DVC's own reason, such as an input that is missing
        (STARTED, {"event": "failed", "error": "wrong option", "transient": False}),
        (STARTED, {"event": "finished", "seconds": 1.0}),  # what came after it is DVC's
    ],
)
def test_what_needs_mending_is_not_tried_again(records):
    assert judged(*records) is FAILURE
    assert not isinstance(FAILURE, TransientError)


def test_a_lost_server_is_tried_again():
    found = judged(STARTED, {"event": "failed", "error": "no answer", "transient": True})
    assert isinstance(found, TransientError)


def test_a_killed_worker_is_named_with_its_signal_and_memory():
    found = judged(STARTED, {"event": "progress", "done": 1, "total": 2, "unit": "x"}, status=-9)
    assert isinstance(found, TransientError)
    assert "killed by signal 9 (SIGKILL)" in str(found)
    assert "it held 0." in str(found)
    assert "for want of memory" in str(found)


def test_a_process_that_is_gone_at_once_is_still_judged():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    found = judged(STARTED | {"pid": gone.pid})
    assert isinstance(found, StageError)
    assert "held" not in str(found)
