"""Requests of several threads of one process: those that set what is one for the process are carried out alone."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from micro_workspace import NETWORK, VIDEOS, make

import hwbench
from hwbench.api.turns import ALONE, alone
from hwbench.errors import InvalidFile, UsageError
from hwbench.interpreter import python_environment
from hwbench.training import TrainingProgress

T = TypeVar("T")
UNDER_WAY = r"hwbench\.train is under way in another thread of this process; give each request a process of its own$"


def in_a_thread(function: Callable[[], T]) -> T:
    """What a function gives in a thread of its own; raises what it raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


class Asking(hwbench.Listener):
    """Makes other requests while a training is at its first step."""

    def __init__(self, request: hwbench.TrainRequest) -> None:
        self.request, self.asked = request, False

    def trained(self, at: TrainingProgress) -> None:
        if self.asked:
            return
        self.asked = True
        for other in (self.request, replace(self.request, out=Path("other"), threads=2)):
            with pytest.raises(UsageError, match=UNDER_WAY):
                in_a_thread(lambda other=other: hwbench.train(other))
        with pytest.raises(UsageError, match=UNDER_WAY):
            in_a_thread(lambda: hwbench.verify(hwbench.VerifyRequest(model=Path("none"))))
        assert in_a_thread(lambda: hwbench.list_zoo(None)).to_json()
        with pytest.raises(InvalidFile, match="none"):
            in_a_thread(lambda: hwbench.bench(hwbench.BenchRequest(model="none.pte")))
        with pytest.raises(InvalidFile, match="none"):
            hwbench.verify(hwbench.VerifyRequest(model=Path("none")))


def test_one_thread_trains_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make(tmp_path / "bench").root)
    request = hwbench.TrainRequest(
        architecture=NETWORK, data=VIDEOS, epochs=1, batch_size=8, threads=1, workers=0, out=Path("run")
    )
    asking, threads = Asking(request), torch.get_num_threads()
    hwbench.train(request, asking)
    assert asking.asked
    assert torch.get_num_threads() == threads
    assert not Path("other").exists()
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert max(Counter(line["step"] for line in lines if line.get("event") == "step").values()) == 1
    assert in_a_thread(lambda: hwbench.train(request)).finished_before


def test_the_turn_of_a_request_that_failed_ends() -> None:
    with pytest.raises(ZeroDivisionError), alone("train"), alone("export"):
        raise ZeroDivisionError

    def enter() -> None:
        with alone("search"):
            pass

    in_a_thread(enter)
    with alone("train"), pytest.raises(UsageError, match=UNDER_WAY):
        in_a_thread(enter)


def test_functions_that_are_carried_out_alone_are_functions() -> None:
    assert set(hwbench.__all__) >= ALONE


FORKING = """
import os
from concurrent.futures import ThreadPoolExecutor
from hwbench.api.turns import alone

def fork():
    child = os.fork()
    if not child:
        with alone("export"):
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

with alone("train"), ThreadPoolExecutor(1) as pool:
    print(pool.submit(fork).result())
"""


def test_a_forked_process_has_a_turn_of_its_own() -> None:
    command = [sys.executable, "-P", "-W", "ignore", "-c", FORKING]
    done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "7\n", done.stderr
