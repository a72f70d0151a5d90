"""What a run may use of the machine."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from hwbench.errors import InvalidValue
from hwbench.interpreter import python_environment
from hwbench.training import Resources

PAGES = """
import contextlib, resource, torch
from hwbench.training.resources import Resources

def step():
    x = torch.ones(20_000_000)
    y = x + 1
    del x, y

with {context}:
    for _ in range(10):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left as they are")
def test_memory_that_a_step_freed_is_there_for_the_next() -> None:
    # Of 4 KiB: the five steps ask for 195,000. A small block between two large ones may make the heap grow once more.
    assert pages_of_five_steps('Resources("cpu").applied()') < 50_000
    assert pages_of_five_steps("contextlib.nullcontext()") > 100_000


def pages_of_five_steps(context: str) -> int:
    """Pages that the system has to give a process."""
    command = [sys.executable, "-c", PAGES.format(context=context)]
    done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, check=True, timeout=300)
    return int(done.stdout)


@pytest.mark.parametrize("threads", [0, 8193, 2**31])
def test_threads_are_no_more_than_processors_of_any_machine(threads: int) -> None:
    with pytest.raises(InvalidValue, match="expected 1 to 8192 threads"):
        Resources("cpu", threads)
