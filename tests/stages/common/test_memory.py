"""Freed memory serves what comes next, and goes back when it is asked to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.common import memory

SCRIPT = """
import resource, torch
from stages.common.memory import keep_freed, release
{first}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
torch.ones(7_500_000)
before = faults()
torch.ones(6_000_000)  # has room where the first was, if that is still there
new, held = faults() - before, resident()
release()
print(new, held - resident())
"""


def run(first, **environment):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(first=first)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(number) for number in done.stdout.split()]


def has_small_pages():
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return not path.exists() or "[always]" not in path.read_text()


@pytest.mark.skipif(memory._of_libc("mallopt") is None, reason="of glibc")
@pytest.mark.skipif(not has_small_pages(), reason="large pages, which are few, are always used here")
def test_freed_blocks_are_kept_for_the_next_pass_and_given_back():
    new, given_back = run("keep_freed()")
    usual, _ = run("")
    assert new < usual / 4
    assert given_back > 20_000_000
    assert run("keep_freed()", MALLOC_TRIM_THRESHOLD_="131072")[0] > usual / 2  # what a user has set stays
