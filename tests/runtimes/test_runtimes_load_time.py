"""What counts as loading a file: making its inputs does not."""

import os
import subprocess
import time

import numpy as np
import pytest

from hwbench.runtimes import python_models
from hwbench.runtimes.machine import Machine
from hwbench.runtimes.protocol import FileChecked, Options, parse_line
from hwbench.runtimes.python_runner import RunnerSession
from hwbench.testing.models import write_eager


@pytest.mark.long
def test_reading_the_input_is_no_part_of_loading_a_file(native, files, tmp_path):
    """The input is a pipe, whose other end waits as long as the runner took until it opened it."""
    pipe = tmp_path / "input.raw"
    os.mkfifo(pipe)
    command = [*native.command, *Options(check=str(files["small"]), input=str(pipe)).argv()]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with open(pipe, "wb") as writer:
        until_input_s = time.monotonic() - start
        time.sleep(until_input_s)
        writer.write(np.zeros((2, 3, 16, 16), np.float32).tobytes())
    out, _ = process.communicate(timeout=240)
    (checked,) = [message for line in out.splitlines() if isinstance(message := parse_line(line), FileChecked)]
    assert 0 < checked.load_ns < 1e9 * until_input_s


@pytest.mark.parametrize("cache", ["warm", "rotate"])
@pytest.mark.parametrize("name", ["small.pte", "net.eager.json"])
def test_making_the_inputs_is_no_part_of_loading_a_file(files, tmp_path, monkeypatch, name, cache):
    path = write_eager(tmp_path / name) if name.endswith("json") else files["small"]
    listing = tmp_path / "list.tsv"
    listing.write_text(f"x\t{path}\n")
    sizes, values = [], python_models.uniform

    def uniform(first, count):
        sizes.append(count)
        return values(first, count)

    machine = Machine()
    monkeypatch.setattr(python_models, "uniform", uniform)
    monkeypatch.setattr(machine, "now_ns", lambda: len(sizes))  # a clock that only goes on where inputs are made
    options = Options(list=str(listing), cache=cache, warm_ms=0, min_ms=0, min_samples=1)
    answers = {answer["kind"]: answer for answer in RunnerSession(options, machine).answers()}
    assert answers["load"]["load_ns"] == 0
    assert answers["session"]["wall_ns"] == 0
    assert set(sizes) == {2 * 3 * 16 * 16}
    assert (len(sizes) > 1) == (cache == "rotate")
