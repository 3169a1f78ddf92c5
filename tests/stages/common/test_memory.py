"""Freed memory serves what comes next, and goes back when it is asked to."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from stages.common.memory import keep_freed, release
{first}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
def work():
    for _ in range(5):
        held = [torch.ones(2_000_000) for _ in range(10)]
work()
before = faults()
work()
held = resident()
release()
print(faults() - before, held - resident())
"""


def run(first):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(first=first)], capture_output=True, text=True, check=True
    )
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_freed_blocks_are_kept_for_the_next_pass_and_given_back():
    faults, given_back = run("keep_freed()")
    assert faults < 5_000
    assert given_back > 50_000_000
    assert run("")[0] > 20_000
