"""One line of a runner costs one row, and what it says can be stored: campaigns on runners that say what they like."""

import json
import os
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from hwbench.devices import Device
from hwbench.devices.local import LocalTransport
from hwbench.errors import CheckFailed, DeviceError
from hwbench.measure import runner_output
from hwbench.measure.artifact_check import check_artifact, profile_ops
from hwbench.measure.bench import Bench, open_bench
from hwbench.measure.campaign import Campaign
from hwbench.measure.runner import measure_sessions
from hwbench.measure.store import MeasurementStore
from hwbench.runtimes.runners import Runner, read_check
from hwbench.specs import Outcome, Target, Timing
from hwbench.testing.models import artifact

SMALL = Path(__file__).parents[1] / "golden" / "pte" / "small-1.5.1.pte"
CPU = min(os.sched_getaffinity(0))
TIMING = Timing(min_rounds=1, max_rounds=1, timeout_s=30)
TARGET = Target("board", "executorch", "1.5.1")

SCRIPT = """
import json, os, sys

def say(kind, **values):
    print(json.dumps({"kind": kind, **values}), flush=True)

def raw(text):
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass") + b"\\n")
    sys.stdout.flush()

def visit(id, kind="session", **more):
    values = dict(id=id, round=0, samples_ns=[1000] * 3, cpu_ns=3000, wall_ns=3000, nivcsw=0, majflt=0,
                  maxrss_kb=1, clock_khz=2000000, temp_mc=41500, at_ns=1)
    say("begin", id=id, round=0)
    say(kind, **{**values, **more})

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
ids = [line.split("\\t")[0] for line in open(arguments["--list"])]
say("start", runner="script", versions={}, threads=1, cpus=[int(arguments["--cpus"])], pid=os.getpid())
"""


@pytest.fixture
def scripted(tmp_path):
    with LocalTransport() as transport:

        def make(lines):
            path = tmp_path / "script.py"
            path.write_text(SCRIPT + textwrap.dedent(lines))
            return Bench(transport, Runner("script", (sys.executable, str(path))), 1, (CPU,))

        yield make


def campaign(bench, store, count=2):
    """The outcome and the reason of each file, as they come out of the store."""
    artifacts = [artifact(SMALL, number) for number in range(count)]
    run = Campaign(
        store,
        TARGET,
        {"device": "board"},
        lambda workloads: (one for one in artifacts if one.workload in workloads),
        partial(measure_sessions, bench=bench, timing=TIMING),
        timing=TIMING,
    )
    result = run.run([one.workload for one in artifacts])
    return [(row.outcome, row.reason) for row in result.measurements]


WRONG = {
    "deep": "raw('[' * 100_000)",
    "deep in a message": 'raw(\'{"kind":"session","id":\' + \'[\' * 100_000)',
    "10**400": "visit(ids[0], cpu_ns=10**400)",
    "10**400 samples": "visit(ids[0], samples_ns=[10**400])",
    "5000 digits": 'raw(\'{"kind":"begin","id":"0","round":\' + \'9\' * 5000 + \'}\')',
    "2**63": "visit(ids[0], nivcsw=2**63)",
    "2**64 disturbed": "visit(ids[0], disturbed=2**64)",
    "NaN": "visit(ids[0], wall_ns=float('nan'))",
    "Infinity": "visit(ids[0], clock_khz=float('inf'))",
    "1e400": 'raw(\'{"kind":"load","id":"0","load_ns":1e400,"first_ns":1}\')',
    "below zero": "visit(ids[0], temp_mc=-1)",
    "true": "visit(ids[0], majflt=True)",
    "a digit of another kind": 'raw(\'{"kind":"begin","id":"0","round":\u00b2}\')',
    "a list of texts": "visit(ids[0], samples_ns=['1'])",
    "an object": "visit(ids[0], samples_ns={'1': 1})",
    "ops with 10**400": "say('ops', id=ids[0], total_ns=1, ops=[['x', 10**400, 1]])",
    "ops with inf executions": "say('ops', id=ids[0], total_ns=1, ops=[['x', 1, float('inf')]])",
    "a kind of lists": "say([[['x']]])",
}


@pytest.mark.parametrize("name", WRONG)
def test_19_13_a_line_that_does_not_read_costs_its_row(scripted, name):
    bench = scripted(
        f"""
        say("begin", id=ids[0], round=0)
        {WRONG[name]}
        visit(ids[0])
        visit(ids[1])
        say("end")
        """
    )
    with MeasurementStore(Path(":memory:")) as store:
        (first, reason), second = campaign(bench, store)
        assert first is Outcome.PARSE
        assert reason
        assert len(reason) < 1000
        assert second == (Outcome.OK, "")


TEXTS = {
    "half of a surrogate pair": "no memory \ud800\udc00 \udfff!",
    "codes of the terminal": "no memory \x1b[2J\x1b]0;title\x07!",
    "zero": "no memory \0!",
    "line ends": "no memory\r\n\u2028!",
    "from right to left": "no memory \u202e!",
    "a book": "no memory !" + "x" * 100_000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_19_13_any_reason_is_stored_and_shown(scripted, name):
    bench = scripted(
        f"""
        say("error", id=ids[0], stage="run", reason={TEXTS[name]!r})
        visit(ids[1])
        say("end")
        """
    )
    with MeasurementStore(Path(":memory:")) as store:
        (first, reason), second = campaign(bench, store)
    assert first is Outcome.CRASH
    assert reason.startswith("no memory")
    assert reason.isprintable()
    assert len(reason) <= 2000
    assert second == (Outcome.OK, "")


@pytest.mark.parametrize(
    "lines",
    [
        'visit("sentinel", kind="sentinel")',
        'visit("sentinel")',
        'say("error", id="sentinel", stage="load", reason="x")',
        'say("error", id=ids[0] + "0", stage="load", reason="x")',
        'say("load", id="nobody", load_ns=1, first_ns=1)',
    ],
)
def test_19_13_what_is_said_of_nobody_costs_nothing(scripted, lines):
    bench = scripted(f"{lines}\nvisit(ids[0])\nvisit(ids[1])\nsay('end')\n")
    with MeasurementStore(Path(":memory:")) as store:
        assert campaign(bench, store) == [(Outcome.OK, "")] * 2


def test_19_13_an_empty_reason_is_a_reason(scripted):
    bench = scripted('say("error", id=ids[0], stage="run", reason="\\x1b\\ud800")\nvisit(ids[1])\nsay("end")')
    with MeasurementStore(Path(":memory:")) as store:
        assert campaign(bench, store)[0] == (Outcome.CRASH, "no reason was given")


def test_19_13_a_runner_that_only_talks_costs_its_row(scripted, monkeypatch):
    monkeypatch.setattr(runner_output, "MAX_IDLE_VISITS", 0.02)  # of two minutes and a half
    bench = scripted(
        """
        if len(ids) > 1:
            while True:
                say("begin", id=ids[0], round=0)
        visit(ids[0])
        say("end")
        """
    )
    files = [artifact(SMALL), artifact(SMALL, 1)]
    failures = measure_sessions(files, rounds=1, seed=0, on_session=lambda *_: None, bench=bench, timing=TIMING)
    assert [failure.outcome for failure in failures] == [Outcome.TIMEOUT]
    assert "without the end of a visit" in failures[0].reason


class Flooded(LocalTransport):
    """A way to a device that gives up a process whose line has no end."""

    def spawn(self, argv, *, env=None):
        process = super().spawn(argv, env=env)
        read = process.read_line

        def read_line(timeout_s):
            line = read(timeout_s)
            if line == "flood":
                raise DeviceError("a command wrote more than 64 MiB to stdout; let it write to a file, and fetch that")
            return line

        process.read_line = read_line
        return process


def test_19_13_a_line_without_end_costs_its_row(scripted):
    bench = scripted(
        """
        if "1" in ids:
            visit("1")
        say("begin", id="0", round=0)
        raw("flood")
        say("end")
        """
    )
    with Flooded() as transport, MeasurementStore(Path(":memory:")) as store:
        (first, reason), second = campaign(Bench(transport, bench.runner, 1, (CPU,)), store)
    assert first is Outcome.PARSE
    assert "more than 64 MiB" in reason
    assert second == (Outcome.OK, "")


@pytest.mark.parametrize("shape", [[2**62, 4], [10**400], [0, 5], [5, 5], [1] * 70 + [10], [-1]])
def test_19_13_a_check_with_a_shape_of_its_own(tmp_path, shape):
    answer = tmp_path / "output.raw"
    answer.write_bytes(bytes(40))
    said = json.dumps({"kind": "check", "shape": shape, "load_ns": 1, "first_ns": 1})
    with pytest.raises(CheckFailed):
        read_check("model.pte", 0, said, "", answer)


def test_19_13_a_check_without_output(tmp_path):
    said = '{"kind":"check","shape":[2,5],"load_ns":1,"first_ns":1}'
    with pytest.raises(CheckFailed, match="left no output"):
        read_check("model.pte", 0, said, "", tmp_path / "nothing.raw")


EXECUTOR = """#!/bin/sh
for word; do
  case $word in
    --num_executions=*) count=${word#*=};;
    --output_file=*) output=${word#*=};;
  esac
done
i=1
while [ $i -le $count ]; do
  %s
  i=$((i + 1))
done
[ -z "$output" ] || printf '%%40s' x > "$output-0.bin"
"""


class Lying(LocalTransport):
    """A device that sends back other files than those that were sent to it."""

    def pull(self, source, target):
        if not source.endswith(("-0.bin", "output.raw")):
            raise AssertionError(f"{source} was fetched from the device")
        super().pull(source, target)


def executor(tmp_path, line):
    path = tmp_path / "executor_runner"
    path.write_text(EXECUTOR % line)
    path.chmod(0o755)
    return Runner("executor-runner", (str(path),))


QUICK = Timing(warmup_s=0.001, min_samples=3, min_session_s=0.001, max_session_s=0.01, min_rounds=1, max_rounds=1)


def test_19_16_what_is_known_of_a_model_comes_from_the_file_here(tmp_path):
    with Lying() as transport:
        bench = Bench(transport, executor(tmp_path, 'echo "Iteration $i of $count: 0.2 ms"'), 1, (CPU,))
        sessions = []
        failures = measure_sessions(
            [artifact(SMALL)], rounds=1, seed=0, on_session=lambda *row: sessions.append(row), bench=bench, timing=QUICK
        )
        assert failures == []
        assert len(sessions) == 1
        assert check_artifact(SMALL, bench=bench).output.shape == (2, 5)


@pytest.mark.parametrize(
    "line",
    [
        'echo "Iteration $i of $count: 1.2.3 ms"',
        'echo "Iteration \u00b2 of $count: 1 ms"',
        'echo "Iteration $i of $count: 1e5 ms"',
        '[ $i = 2 ] || echo "Iteration $i of $count: 0.2 ms"',
        f'echo "Iteration $i of $count: {5000 * "9"} ms"',
        f'echo "Iteration {5000 * "9"} of $count: 1 ms"',
    ],
)
def test_19_13_times_that_do_not_read_are_the_failure_of_the_file(tmp_path, line):
    with LocalTransport() as transport:
        bench = Bench(transport, executor(tmp_path, line), 1, (CPU,))
        failures = measure_sessions(
            [artifact(SMALL)], rounds=1, seed=0, on_session=lambda *_: None, bench=bench, timing=QUICK
        )
    assert [failure.outcome for failure in failures] == [Outcome.PARSE]
    assert "no such line reads for N" in failures[0].reason


def test_19_13_clock_and_heat_that_do_not_read_are_unknown(tmp_path):
    line = (
        'echo "Iteration $i of $count: 0.2 ms"; [ $i != $count ] || printf "== clock\\n\u00b2\\n== zones\\ncpu %s\\n"'
    )
    path = executor(tmp_path, f"{line} {5000 * '9'}")
    sessions = []
    with LocalTransport() as transport:
        bench = Bench(transport, path, 1, (CPU,))
        failures = measure_sessions(
            [artifact(SMALL)], rounds=1, seed=0, on_session=lambda *row: sessions.append(row), bench=bench, timing=QUICK
        )
    assert failures == []
    assert sessions[0][1].temperature_celsius == 0


def test_19_13_a_profile_that_does_not_read(scripted):
    bench = scripted("say('ops', id='0', total_ns=1, ops=[['x', 10**400, 1]])")
    with pytest.raises(CheckFailed, match="something else than expected"):
        profile_ops(SMALL, bench=bench, timing=QUICK)


def test_19_16_the_bench_knows_what_was_sent(tmp_path):
    with open_bench(Device("local", "local", runner="python"), "executorch", cache_dir=tmp_path) as bench:
        there = bench.push(SMALL)
        assert bench.sent == {there: SMALL}
