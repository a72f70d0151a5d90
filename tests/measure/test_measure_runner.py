import json
import os
import shutil
import signal
import sys
import textwrap
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hwbench.measure.runner as host
import hwbench.measure.runner_output as runner_output
from hwbench.devices import Device
from hwbench.devices.local import LocalTransport
from hwbench.errors import CheckFailed, DeviceError, DeviceLost, DeviceUnreachable, InvalidFile, InvalidValue
from hwbench.measure.artifact_check import check_artifact, profile_ops
from hwbench.measure.bench import Bench, open_bench
from hwbench.measure.campaign import Campaign
from hwbench.measure.drift import MAX_REFERENCE_VISITS, Drift, Pauses
from hwbench.measure.quality import REPEATS
from hwbench.measure.reference import Reference
from hwbench.measure.runner import measure_sessions
from hwbench.measure.store import MeasurementStore
from hwbench.runtimes.capabilities import NATIVE, PYTHON
from hwbench.runtimes.native.build import build_runner
from hwbench.runtimes.python_runner import read_list
from hwbench.runtimes.runners import Runner
from hwbench.specs import Outcome, Target, Timing
from hwbench.testing.models import artifact

GOLDEN = Path(__file__).parents[1] / "golden" / "pte"
SMALL, ABORT = GOLDEN / "small-1.5.1.pte", GOLDEN / "abort-1.5.1.pte"
QUICK = Timing(warmup_s=0.001, min_samples=3, min_session_s=0.002, max_session_s=0.05, sentinel_every=3, timeout_s=30)
CPU = min(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def native(runner_cache):
    binary = build_runner(runner_cache)
    return Runner(NATIVE, (str(binary),), build=binary.name)


class Watched(LocalTransport):
    """Remembers the processes it started."""

    def __init__(self):
        super().__init__()
        self.started = []

    def spawn(self, argv, *, env=None):
        process = super().spawn(argv, env=env)
        self.started.append(process)
        return process

    def signal(self, number):
        os.kill(self.started[-1]._process.pid, number)


@pytest.fixture
def transport():
    with Watched() as transport:
        yield transport


@pytest.fixture
def bench(transport, native):
    return Bench(transport, native, 1, (CPU,))


def copies(tmp_path, count):
    """Artifacts with files of their own."""
    found = []
    for number in range(count):
        path = tmp_path / f"{number}.pte"
        shutil.copyfile(SMALL, path)
        found.append(artifact(path, number))
    return found


def measure(artifacts, bench, *, rounds=2, seed=0, timing=QUICK, **options):
    """The sessions in the order in which they came, and the failures by file name."""
    sessions = []
    options.setdefault("on_session", lambda a, s: None)
    options.setdefault("wait", lambda seconds: None)
    inner = options.pop("on_session")

    def keep(a, s):
        sessions.append((a, s))
        inner(a, s)

    failures = measure_sessions(
        artifacts, rounds=rounds, seed=seed, on_session=keep, bench=bench, timing=timing, **options
    )
    names = {a.workload: a.path.name for a in artifacts}
    return sessions, {names[failure.workload]: failure for failure in failures}


def counts(sessions):
    return Counter(a.path.name for a, _ in sessions)


def test_each_artifact_once_per_round_in_fresh_seeded_order(bench, tmp_path):
    artifacts = copies(tmp_path, 5)
    sessions, failures = measure(artifacts, bench, rounds=4, sentinel=SMALL)
    assert failures == {}
    order = [a.path.name for a, _ in sessions]
    rounds = [tuple(order[at : at + 5]) for at in range(0, 20, 5)]
    assert all(len(set(names)) == 5 for names in rounds)
    assert len(set(rounds)) > 1
    assert order == [a.path.name for a, _ in measure(artifacts, bench, rounds=4)[0]]
    assert order != [a.path.name for a, _ in measure(artifacts, bench, rounds=4, seed=1)[0]]


def test_what_a_session_holds(bench, tmp_path):
    sessions, _ = measure(copies(tmp_path, 1), bench, rounds=2, sentinel=SMALL)
    for _, session in sessions:
        assert len(session.samples_s) >= 3
        assert all(0 < sample < 1 for sample in session.samples_s)
        assert sum(session.samples_s) <= session.wall_s
        assert session.cpu_s > 0
        assert session.load_s > 0
        assert session.first_s > 0
        assert session.drift > 0
        assert session.median_s > 0


@pytest.fixture(params=["caf\udce9", "a\x1cb\u2028c\rd"])
def odd(request, tmp_path):
    """A folder whose name is not UTF-8, and one with what Python takes for ends of lines."""
    (tmp_path / request.param).mkdir()
    return tmp_path / request.param


def test_files_in_a_folder_of_any_name(bench, odd):
    artifacts = copies(odd, 2)
    (odd / "sentinel.pte").write_bytes(SMALL.read_bytes())
    sessions, failures = measure(artifacts, bench, sentinel=odd / "sentinel.pte")
    assert (failures, counts(sessions)) == ({}, {"0.pte": 2, "1.pte": 2})
    assert profile_ops(artifacts[0].path, bench=bench, timing=QUICK).operations
    sentinel = Reference(bench, QUICK, odd / "sentinel.pte", Drift(), Pauses(), time.sleep)
    assert next(sentinel._visits(lambda: False)).samples_ns
    listing = odd / "list.tsv"
    listing.write_bytes(os.fsencode("".join(f"{one.path.stem}\t{one.path}\n" for one in artifacts)))
    assert [entry.path for entry in read_list(str(listing), 3)] == [str(one.path) for one in artifacts]
    listing.write_text("")
    assert read_list(str(listing), 3) == []


@pytest.mark.parametrize("name", ["a\tb", "a\nb"])
def test_a_folder_that_no_list_can_name_is_refused(bench, tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(InvalidValue, match="expected a path without tabs and ends of lines, got"):
        measure(copies(tmp_path / name, 1), bench)


def test_nothing_to_do(bench):
    assert measure([], bench) == ([], {})
    assert measure([artifact(SMALL)], bench, rounds=0) == ([], {})
    assert bench.transport.started == []


def test_a_bad_file_costs_itself(bench, tmp_path):
    good = copies(tmp_path, 3)
    (tmp_path / "truncated.pte").write_bytes(SMALL.read_bytes()[:3000])
    (tmp_path / "empty.pte").write_bytes(b"")
    shutil.copyfile(ABORT, tmp_path / "abort.pte")
    names = ("truncated.pte", "empty.pte", "abort.pte", "missing.pte")
    bad = [artifact(tmp_path / name, 10 + number) for number, name in enumerate(names)]
    sessions, failures = measure([*bad, *good], bench, rounds=3, sentinel=SMALL)
    assert counts(sessions) == {"0.pte": 3, "1.pte": 3, "2.pte": 3}
    assert {name: failure.outcome for name, failure in failures.items()} == {
        "truncated.pte": Outcome.LOAD,
        "empty.pte": Outcome.LOAD,
        "abort.pte": Outcome.CRASH,
        "missing.pte": Outcome.PUSH,
    }
    assert "too small" in failures["truncated.pte"].reason
    assert "killed by SIGABRT" in failures["abort.pte"].reason
    assert "not a Tensor" in failures["abort.pte"].reason
    assert "missing.pte" in failures["missing.pte"].reason


def test_only_bad_files(bench, tmp_path):
    artifacts = [artifact(ABORT, number) for number in range(2)] + [artifact(tmp_path / "missing.pte", 2)]
    sessions, failures = measure(artifacts, bench)
    assert sessions == []
    assert {failure.outcome for failure in failures.values()} == {Outcome.CRASH, Outcome.PUSH}


def test_a_killed_runner_costs_the_session_in_progress(bench, transport, tmp_path):
    artifacts = copies(tmp_path, 4)
    timing = Timing(warmup_s=0.001, min_session_s=0.4, min_samples=1, max_session_s=1)
    killed = []

    def kill(a, s):
        if not killed:
            time.sleep(0.1)
            killed.append(a)
            transport.signal(signal.SIGKILL)

    sessions, failures = measure(artifacts, bench, rounds=2, timing=timing, on_session=kill)
    assert killed
    assert failures == {}
    assert counts(sessions) == {a.path.name: 2 for a in artifacts}
    assert len(transport.started) == 2


def test_a_visit_beyond_the_time_limit(bench, tmp_path):
    timing = Timing(warmup_s=0.001, min_session_s=60, max_session_s=60, timeout_s=1)
    sessions, failures = measure(copies(tmp_path, 2), bench, timing=timing)
    assert sessions == []
    assert {failure.outcome for failure in failures.values()} == {Outcome.TIMEOUT}
    assert all("1 s" in failure.reason for failure in failures.values())


def test_a_runner_that_hangs_is_ended_from_here(bench, transport, tmp_path, monkeypatch):
    monkeypatch.setattr(runner_output, "GRACE_S", 0.5)
    artifacts = copies(tmp_path, 3)
    stopped = []

    def stop(a, s):
        if not stopped:
            time.sleep(0.1)
            transport.signal(signal.SIGSTOP)
            stopped.append(a)

    timing = Timing(warmup_s=0.001, min_session_s=0.3, min_samples=1, max_session_s=1, timeout_s=2)
    sessions, failures = measure(artifacts, bench, rounds=1, timing=timing, on_session=stop)
    ((victim, failure),) = failures.items()
    assert failure.outcome is Outcome.TIMEOUT
    assert counts(sessions) == {a.path.name: 1 for a in artifacts if a.path.name != victim}


def test_an_exception_of_the_caller_ends_the_runner(bench, transport, tmp_path):
    def interrupt(a, s):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(copies(tmp_path, 2), bench, rounds=1000, on_session=interrupt)
    assert transport.started[0].wait(20).status == -signal.SIGKILL


def test_a_sentinel_that_cannot_be_run(bench, tmp_path):
    (tmp_path / "sentinel.pte").write_text("nothing")
    with pytest.raises(InvalidFile, match=r"sentinel\.pte"):
        measure(copies(tmp_path, 1), bench, sentinel=tmp_path / "sentinel.pte")
    with pytest.raises(DeviceLost, match="SIGABRT"):
        measure(copies(tmp_path, 1), bench, sentinel=ABORT)


SCRIPT = """
import json, os, signal, sys

def say(kind, **values):
    print(json.dumps({"kind": kind, **values}), flush=True)

def visit(id, ns=1000, kind="session", **more):
    values = dict(id=id, round=0, samples_ns=[ns, ns, ns], cpu_ns=3 * ns, wall_ns=3 * ns, nivcsw=0, majflt=0,
                  maxrss_kb=1, clock_khz=2000000, temp_mc=41500, at_ns=1)
    say("begin", id=id, round=0)
    say(kind, **{**values, **more})

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
ids = [line.split("\\t")[0] for line in open(arguments["--list"])]
cpus = [int(arguments["--cpus"])]
"""


@pytest.fixture
def scripted(transport, tmp_path):
    """A bench whose runner is a few lines of Python, which may misbehave as they like."""

    def make(lines, start=True):
        hello = 'say("start", runner="script", versions={}, threads=1, cpus=cpus, pid=os.getpid())\n' if start else ""
        path = tmp_path / "script.py"
        path.write_text(SCRIPT + hello + textwrap.dedent(lines))
        return Bench(transport, Runner("script", (sys.executable, str(path))), 1, (CPU,))

    return make


def test_values_become_seconds_and_hertz(scripted):
    bench = scripted('for id in ids:\n    visit(id, 2500, nivcsw=2)\nsay("end")')
    ((_, session),), _ = measure([artifact(SMALL)], bench, rounds=1)
    assert session.samples_s == pytest.approx((2.5e-6,) * 3)
    assert session.wall_s == pytest.approx(7.5e-6)
    assert (session.cpu_s, session.involuntary_switches, session.drift) == (pytest.approx(7.5e-6), 2, 1.0)
    assert (session.clock_hz, session.temperature_celsius) == (2e9, 41.5)


@pytest.mark.parametrize(
    "line",
    [
        'print("Segmentation warning from a library", flush=True)',
        'say("session", id=ids[0])',
        "visit(ids[0], samples_ns=[])",
        "visit(ids[0], 0)",
        "visit(ids[0], samples_ns=[5, 0, 5])",
        "visit(ids[0], samples_ns=[5, float('nan')])",
        'visit(ids[0], wall_ns="long")',
        'say("dance", id=ids[0])',
        'sys.stdout.buffer.write(b"\\xff\\xfe\\n"); sys.stdout.flush()',
    ],
)
def test_a_malformed_line_is_a_failure_and_no_number(scripted, tmp_path, line):
    bench = scripted(
        f"""
        say("begin", id=ids[0], round=0)
        {line}
        visit(ids[0])
        visit(ids[1])
        say("end")
        """
    )
    sessions, failures = measure(copies(tmp_path, 2), bench, rounds=1)
    assert counts(sessions) == {"1.pte": 1}
    assert failures["0.pte"].outcome is Outcome.PARSE
    assert failures["0.pte"].reason


def test_a_line_that_was_cut_off_by_a_crash_is_the_crash(scripted, tmp_path):
    bench = scripted(
        """
        visit(ids[-1])
        if len(ids) > 1:
            say("begin", id=ids[0], round=0)
            print('{"kind":"session","id":"0","samp', end="", flush=True)
            print("stack smashed", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        say("end")
        """
    )
    sessions, failures = measure(copies(tmp_path, 2), bench, rounds=1)
    assert counts(sessions) == {"1.pte": 1}
    assert failures["0.pte"].outcome is Outcome.CRASH
    assert "SIGSEGV; it last said: stack smashed" in failures["0.pte"].reason


def test_a_failure_to_run_is_a_crash_of_that_file(scripted, tmp_path):
    bench = scripted(
        """
        say("begin", id=ids[0], round=0)
        say("error", id=ids[0], stage="run", reason="no memory")
        say("error", id="42", stage="run", reason="of nobody")
        visit("42")
        visit(ids[1])
        visit(ids[1])
        say("end")
        """
    )
    sessions, failures = measure(copies(tmp_path, 2), bench, rounds=1)
    assert counts(sessions) == {"1.pte": 1}
    assert {name: (f.outcome, f.reason) for name, f in failures.items()} == {"0.pte": (Outcome.CRASH, "no memory")}


@pytest.mark.parametrize(
    "lines", ["", 'say("end")', 'say("begin", id="sentinel", round=0); os.abort()', "os._exit(1)", "visit('42')"]
)
def test_a_runner_that_never_reaches_a_file_is_the_devices_fault(scripted, transport, tmp_path, lines):
    with pytest.raises(DeviceLost, match="3 times") as caught:
        measure(copies(tmp_path, 2), scripted(lines))
    assert caught.value.exit_status == 3
    assert len(transport.started) == 3


def test_a_runner_that_dies_between_files_is_started_again(scripted, transport, tmp_path):
    sessions, failures = measure(copies(tmp_path, 4), scripted("visit(ids[0]); os._exit(1)"), rounds=1)
    assert (counts(sessions), failures) == ({f"{number}.pte": 1 for number in range(4)}, {})
    assert len(transport.started) == 4


def test_a_runner_that_does_not_start(scripted, transport, native, tmp_path):
    with pytest.raises(DeviceError, match="doctor"):
        measure(copies(tmp_path, 1), scripted('print("bad option", file=sys.stderr); sys.exit(2)', start=False))
    with pytest.raises(DeviceError, match="no-such-runner"):
        measure(copies(tmp_path, 1), Bench(transport, Runner("x", ("/no-such-runner",))))
    files = copies(tmp_path, 1)  # one of them is no program
    with pytest.raises(DeviceError, match=r"does not start: .*; see: hwbench devices check DEVICE"):
        measure(files, Bench(transport, Runner("x", (str(next(tmp_path.glob("*.pte"))),))))
    with pytest.raises(DeviceError, match="does not start"):
        measure(copies(tmp_path, 1), Bench(transport, native, 1, (10_000,)))


@pytest.mark.parametrize("wrong", ["threads=2, cpus=cpus", "threads=1, cpus=[99]"])
def test_other_threads_or_processors_than_asked_for_are_refused(scripted, tmp_path, wrong):
    lines = f'say("start", runner="script", versions={{}}, {wrong}, pid=1); visit(ids[0]); say("end")'
    with pytest.raises(DeviceError, match="should have 1 threads on processors"):
        measure(copies(tmp_path, 1), scripted(lines, start=False))


# Alone, the sentinel gets faster until it settles at a microsecond; SPEEDS are its visits between those to a file.
SENTINELS = """
if ids == ["sentinel"]:
    for ns in ALONE:
        visit("sentinel", ns)
else:
    visit("sentinel", 1000, "sentinel", at_ns=0)
    for at, ns in enumerate(SPEEDS):
        visit(ids[0], at_ns=1000 * at + 250)
        visit("sentinel", ns, "sentinel", at_ns=1000 * (at + 1), **MORE)
say("end")
"""


def sentinels(scripted, speeds, alone=(3000, 1500, 1000, 1005, 1000, 1000), more="{}"):
    values = {"SPEEDS": speeds, "ALONE": alone, "MORE": more}
    text = SENTINELS
    for name, value in values.items():
        text = text.replace(name, str(value))
    return scripted(text)


def corrected(bench, tmp_path, speeds, **options):
    """What each session was handed over with, what became of it, and how long was waited."""
    given, known, waited = [], [], []
    measure(
        copies(tmp_path, 1), bench, rounds=len(speeds), sentinel=SMALL,
        on_session=lambda a, s: given.append(s.drift), on_drift=lambda a, s, drift: known.append(drift),
        wait=waited.append, **options
    )  # fmt: skip
    return given, known, waited


def test_a_session_has_the_drift_of_the_sentinel_before_and_then_that_between_two(scripted, tmp_path):
    given, known, _ = corrected(sentinels(scripted, (1020, 1020)), tmp_path, (1020, 1020))
    assert given == pytest.approx([1.0, 1.02])
    assert known == pytest.approx([1.02**0.25, 1.02])


def test_a_correction_names_the_session_by_its_number(scripted, tmp_path):
    numbers = []
    bench = sentinels(scripted, (1020, 1020))
    measure(
        copies(tmp_path, 1), bench, rounds=2, sentinel=SMALL, on_session=lambda a, s: None,
        on_drift=lambda a, number, drift: numbers.append(number), wait=lambda seconds: None,
    )  # fmt: skip
    assert numbers == [0, 1]


def test_a_sentinel_that_was_disturbed_says_nothing(scripted, tmp_path):
    given, known, _ = corrected(sentinels(scripted, (9000, 9000), more="dict(nivcsw=9)"), tmp_path, (1, 1))
    assert given == [1.0, 1.0]
    assert known == []


def test_a_reference_that_was_disturbed_is_taken_anew_and_what_came_before_is_corrected(scripted, tmp_path):
    speeds = (1000, 800, 800, 800, 800)
    drift = Drift()
    given, known, _ = corrected(sentinels(scripted, speeds), tmp_path, speeds, drift=drift)
    assert given == pytest.approx([1.0, 1.0, 0.8, 0.8, 1.0])
    assert known[:3] == pytest.approx([1.0, 0.8**0.25, 0.8])
    assert known[3:6] == pytest.approx([1.25, 0.8**0.25 * 1.25, 1.0])  # the three sessions before, by the new reference
    assert known[-2:] == pytest.approx([1.0, 1.0])
    assert drift.ratio == 1.0


def test_a_machine_that_becomes_faster_later_leaves_the_reference_as_it_is(scripted, tmp_path):
    speeds = (1000, 1000, 1010, 960, 960, 960, 960)  # four visits agreed with it, the one before them included
    drift = Drift()
    given, known, _ = corrected(sentinels(scripted, speeds), tmp_path, speeds, drift=drift)
    assert given == pytest.approx([1.0, 1.0, 1.0, 1.01, 0.96, 0.96, 0.96])
    assert len(known) == len(given)  # each of them once
    assert drift.ratio == pytest.approx(0.96)


def test_the_reference_of_earlier_turns_is_not_taken_anew(scripted, tmp_path):
    """Their sessions are on its scale, and out of reach."""
    drift = Drift()
    bench = sentinels(scripted, (1000,))
    measure(copies(tmp_path, 1), bench, rounds=1, sentinel=SMALL, drift=drift)
    speeds = (900,) * 12
    given, _, _ = corrected(sentinels(scripted, speeds), tmp_path, speeds, drift=drift)
    assert given[1:] == pytest.approx([0.9] * 11)
    assert drift.ratio == pytest.approx(0.9)


def test_the_reference_outlives_a_turn(scripted, transport, tmp_path):
    drift = Drift()
    bench = sentinels(scripted, (1020,))
    measure(copies(tmp_path, 1), bench, rounds=1, sentinel=SMALL, drift=drift)
    assert (drift.settled, drift.ratio) == (True, pytest.approx(1.02))
    measure(copies(tmp_path, 1), bench, rounds=1, sentinel=SMALL, drift=drift)
    assert len(transport.started) == 3


def test_a_hot_machine_is_waited_for_and_a_moment_of_noise_is_not(scripted, tmp_path):
    hot, warm = Pauses(measured_s=1000.0), Pauses(measured_s=1000.0)
    always = sentinels(scripted, (1200,), alone=(1000,) * 12)
    given, known, waited = corrected(always, tmp_path, (1200,), pauses=warm)
    assert (given, known, waited) == ([1.0], [], [])  # the visit right after it was as fast as ever
    drift = Drift()
    for _ in range(3):
        drift.add(1e-6)
    slow = sentinels(scripted, (1200,), alone=(1200,) * 12)
    given, known, waited = corrected(slow, tmp_path, (1200,), pauses=hot, drift=drift)
    assert known == pytest.approx([1.2**0.25])
    assert waited == [5, 10, 20, 40, 60, 60, 60]
    assert hot.given_up
    assert not hot.possible


def test_a_device_whose_first_visit_in_a_process_is_slow_is_measured_nevertheless(scripted, transport, tmp_path):
    ramp = """
if ids == ["sentinel"]:
    for _ in range(12):
        visit("sentinel", 1000)
else:
    visit("sentinel", 1200, "sentinel", at_ns=0)
    visit(ids[0], at_ns=250)
    visit("sentinel", 1000, "sentinel", at_ns=1000)
say("end")
"""
    given, known, waited = corrected(scripted(ramp), tmp_path, (1,), pauses=Pauses(measured_s=1000.0))
    assert (given, waited) == ([pytest.approx(1.2)], [])
    assert known == [pytest.approx(1.2**0.75)]
    assert len(transport.started) == 4  # the reference, a turn that was stopped, one visit alone, a turn to its end


def test_a_machine_that_tells_neither_clock_nor_heat_is_not_waited_for(scripted, tmp_path):
    bench = sentinels(scripted, (1200, 1200), more="dict(clock_khz=0, temp_mc=0)")
    given, known, waited = corrected(bench, tmp_path, (1200, 1200), pauses=Pauses(measured_s=1000.0))
    assert (given, waited) == (pytest.approx([1.0, 1.2]), [])
    assert known == pytest.approx([1.2**0.25, 1.2])


def test_waiting_takes_no_more_than_its_share_and_ends_with_recovery():
    pauses = Pauses()
    assert not pauses.possible
    pauses.measured_s = 10.0
    assert list(pauses) == [5.0, 10.0]
    assert not pauses.given_up
    pauses.measured_s = 1000.0
    for pause in pauses:
        assert pause == 20.0
        break
    assert next(iter(pauses)) == 20.0


def test_a_reference_is_taken_once_three_visits_agree():
    drift = Drift()
    for seconds in (5.0, 2.0, 1.0, 1.02, 1.0):
        drift.add(seconds)
        assert (drift.settled, drift.ratio, drift.excessive) == (False, 1.0, False)
    drift.add(1.008)
    assert not drift.settled
    drift.add(1.005)
    assert drift.settled
    assert drift.ratio == 1.0
    drift.add(1.0)
    assert drift.ratio == pytest.approx(1.0 / 1.005)
    drift.add(1.5)
    assert (drift.ratio, drift.excessive) == (pytest.approx(1.5 / 1.005), True)
    restless = Drift()
    for number in range(MAX_REFERENCE_VISITS):
        restless.add(1.0 + number % 2)
    assert restless.settled


def test_without_a_compiler_the_python_runner_measures(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in ("sh", "cat", "uname"):
        (tmp_path / program).symlink_to(shutil.which(program, path="/usr/bin:/bin"))
    said = []
    with open_bench(Device("local", "local"), "executorch", cache_dir=tmp_path / "cache", report=said.append) as bench:
        assert bench.runner.kind == PYTHON
        assert bench.conditions["runner"] == "python/4"
        sessions, failures = measure([artifact(SMALL), artifact(ABORT, 1)], bench, rounds=2, sentinel=SMALL)
    assert counts(sessions) == {SMALL.name: 2}
    assert "SIGABRT" in failures[ABORT.name].reason
    assert "apt-get install g++" in said[0]


def test_a_bench_on_this_machine(tmp_path, native):
    cache = Path(native.command[0]).parent
    with open_bench(Device("local", "local", cpus=(CPU,)), "executorch", cache_dir=cache) as bench:
        assert bench.runner == native
        assert (bench.threads, bench.cpus) == (1, (CPU,))
        assert bench.conditions["cpus"] == str(CPU)
        assert bench.conditions["runner"] == "native/4"
        sessions, _ = measure(copies(tmp_path, 1), bench, rounds=1)
    assert len(sessions) == 1
    with (
        pytest.raises(InvalidValue, match="1000 threads"),
        open_bench(Device("local", "local"), "executorch", cache_dir=cache, threads=1000),
    ):
        pass
    with (
        pytest.raises(DeviceUnreachable, match=r"'s9': .*adb"),
        open_bench(Device("s9", "adb"), "executorch", cache_dir=cache),
    ):
        pass


def test_checking_an_artifact(bench, tmp_path):
    result = check_artifact(SMALL, bench=bench)
    np.testing.assert_allclose(result.output[0], [0.165961, -0.215769, -0.0769797, -0.246502, -0.0053821], rtol=1e-4)
    values = np.zeros((2, 3, 16, 16), np.float32)
    zero = check_artifact(SMALL, values, bench=bench)
    assert zero.output.shape == (2, 5)
    assert not np.array_equal(zero.output, result.output)
    assert np.array_equal(zero.output[0], zero.output[1])
    (tmp_path / "text.pte").write_text("no model")
    with pytest.raises(InvalidFile, match=r"text\.pte"):
        check_artifact(tmp_path / "text.pte", bench=bench)
    with pytest.raises(CheckFailed, match="SIGABRT"):
        check_artifact(ABORT, bench=bench)


def test_a_profile_by_operation(bench, tmp_path):
    profile = profile_ops(SMALL, bench=bench, timing=QUICK)
    assert [operation.name for operation in profile.operations][1:4] == [
        "Convolution (NHWC, F32) IGEMM #1",
        "Convolution (NHWC, F32) DWConv #1",
        "Fully Connected (NC, F32) GEMM #1",
    ]
    assert profile.operations[-1].name == "mean.out"
    assert all(operation.count >= 3 for operation in profile.operations)
    assert sum(operation.seconds for operation in profile.operations) + profile.unaccounted_s > 0
    assert profile.total_s > 0
    (tmp_path / "text.pte").write_text("no model")
    with pytest.raises(InvalidFile, match=r"text\.pte"):
        profile_ops(tmp_path / "text.pte", bench=bench)
    with pytest.raises(CheckFailed, match="SIGABRT"):
        profile_ops(ABORT, bench=bench)


def test_a_campaign_on_this_machine(bench, tmp_path):
    artifacts = {a.workload: a for a in [*copies(tmp_path, 3), artifact(ABORT, 5)]}
    timing = Timing(warmup_s=0.001, min_session_s=0.005, min_rounds=3, max_rounds=3, ci_ratio=5.0)

    def build(workloads):
        yield from (artifacts[workload] for workload in workloads)

    call = partial(measure_sessions, bench=bench, timing=timing, sentinel=SMALL, drift=Drift())
    target = Target("local", "executorch", "1.5.1")
    with MeasurementStore(tmp_path / "store.sqlite") as store:
        result = Campaign(store, target, {"runner": "native/4"}, build, call, timing=timing).run(artifacts)
    assert [row.outcome for row in result.failed] == [Outcome.CRASH]
    # The three files have the same bytes, and so one measurement.
    assert len(result.ok) == 3
    # Three that nothing speaks against; on a busy machine some are taken again.
    assert all(2 <= row.stats.num_sessions <= 3 + REPEATS for row in result.ok)
    assert json.dumps([row.stats.median_s for row in result.ok])


class Unplugged(Watched):
    """The cable is pulled while a line is read: after so many lines of each of the first ``times`` runners."""

    def __init__(self, times, lines):
        super().__init__()
        self.times, self.lines = times, lines

    def spawn(self, argv, *, env=None):
        process = super().spawn(argv, env=env)
        if len(self.started) <= self.times:
            left, read = iter(range(self.lines)), process.read_line

            def read_line(timeout_s):
                if next(left, None) is None:
                    process.kill()
                    raise DeviceLost("the device went away")
                return read(timeout_s)

            process.read_line = read_line
        return process


@pytest.mark.parametrize("lines", [0, 1, 2, 4, 5, 9])
def test_a_pulled_cable_costs_the_session_under_way(native, tmp_path, lines):
    said = []
    with Unplugged(2, lines) as transport:
        bench = Bench(transport, native, 1, (CPU,), report=said.append)
        sessions, failures = measure(copies(tmp_path, 4), bench, rounds=3)
        assert len(transport.started) == 3
    assert failures == {}
    assert counts(sessions) == {f"{number}.pte": 3 for number in range(4)}
    assert len(said) == 2
    assert "went away" in said[0]


def test_a_device_that_stays_away_is_lost(native, tmp_path):
    with Unplugged(99, 1) as transport, pytest.raises(DeviceLost, match=r"3 times .* went away"):
        measure(copies(tmp_path, 4), Bench(transport, native, 1, (CPU,)))
    assert len(transport.started) == host.MAX_IDLE_STARTS


@pytest.mark.parametrize(("end", "outcome"), [("9", Outcome.CRASH), ("lost", Outcome.LOST)])
def test_a_file_that_takes_the_device_with_it_again_and_again_is_taken_out(
    scripted, transport, tmp_path, monkeypatch, end, outcome
):
    bench = scripted(
        """
        for id in ids:
            if id == "2":
                say("begin", id=id, round=0)
                print("cut", flush=True) if os.environ.get("LOST") else os.kill(os.getpid(), signal.SIGKILL)
            visit(id)
        say("end")
        """
    )
    if end == "lost":
        monkeypatch.setenv("LOST", "1")
        parse = host.protocol.parse_line

        def cut(line):
            if line == "cut":
                raise DeviceLost("the device went away")
            return parse(line)

        monkeypatch.setattr(host.protocol, "parse_line", cut)
    sessions, failures = measure(copies(tmp_path, 4), bench, rounds=1)
    assert counts(sessions) == {f"{number}.pte": 1 for number in (0, 1, 3)}
    assert {name: failure.outcome for name, failure in failures.items()} == {"2.pte": outcome}
    assert "3 times" in failures["2.pte"].reason
    assert len(transport.started) == 4


def test_a_runner_killed_for_memory_once_costs_one_session(scripted, transport, tmp_path):
    flag = tmp_path / "flag"
    bench = scripted(
        f"""
        from pathlib import Path
        visit(ids[0])
        if not Path({str(flag)!r}).exists():
            Path({str(flag)!r}).touch()
            say("begin", id=ids[1], round=0)
            os.kill(os.getpid(), signal.SIGKILL)
        for id in ids[1:]:
            visit(id)
        say("end")
        """
    )
    sessions, failures = measure(copies(tmp_path, 4), bench, rounds=1)
    assert (counts(sessions), failures) == ({f"{number}.pte": 1 for number in range(4)}, {})
    assert len(transport.started) == 2


def test_what_the_device_refuses_is_no_failure_of_a_file(native, tmp_path):
    class Full(Watched):
        def push(self, source):
            raise DeviceError("no space is left on the device")

    with Full() as transport, pytest.raises(DeviceError, match="no space"):
        measure(copies(tmp_path, 2), Bench(transport, native, 1, (CPU,)))


def test_a_file_that_is_gone_is_its_own_failure(bench, tmp_path):
    artifacts = copies(tmp_path, 3)
    (tmp_path / "1.pte").unlink()
    sessions, failures = measure(artifacts, bench, rounds=1)
    assert counts(sessions) == {"0.pte": 1, "2.pte": 1}
    assert failures["1.pte"].outcome is Outcome.PUSH


# Visits to the sentinel and to a file that tell the clock, and how crowded the core is; the machine tells nothing else.
PROBED = """
dark = dict(clock_khz=0, temp_mc=0)
if ids == ["sentinel"]:
    for crowding in ALONE:
        visit("sentinel", 1000 if crowding < 1.2 else 2000, probe_ns=20000, crowding_ppm=int(1e6 * crowding), **dark)
else:
    visit("sentinel", 1000, "sentinel", probe_ns=20000, crowding_ppm=1000000, at_ns=0, **dark)
    for at, (clock, crowding) in enumerate(SESSIONS):
        visit(ids[0], int(1000 * clock * crowding), at_ns=1000 * at + 250,
              probe_ns=int(20000 * clock), crowding_ppm=int(1e6 * crowding), memory_ppm=6000000, disturbed=3, **dark)
        visit("sentinel", int(1000 * clock * crowding), "sentinel", at_ns=1000 * (at + 1),
              probe_ns=int(20000 * clock), crowding_ppm=int(1e6 * crowding), **dark)
say("end")
"""


def probed(scripted, sessions, alone=(1.0,) * 12):
    return scripted(PROBED.replace("SESSIONS", str(sessions)).replace("ALONE", str(alone)))


def test_a_session_that_tells_its_clock_is_corrected_by_it_alone(scripted, tmp_path):
    drift = Drift()
    sessions, _ = measure(
        copies(tmp_path, 1), probed(scripted, ((1.0, 1.0), (1.05, 1.0), (0.9, 1.0))), rounds=3, sentinel=SMALL,
        drift=drift, on_drift=lambda *_: pytest.fail("what the sentinel says is not more exact"),
    )  # fmt: skip
    assert [session.drift for _, session in sessions] == pytest.approx([1.0, 1.05, 0.9])
    assert [session.median_s for _, session in sessions] == pytest.approx([1e-6] * 3, rel=1e-3)
    assert (sessions[1][1].probe_s, sessions[1][1].memory) == (pytest.approx(2.1e-5), pytest.approx(6.0))
    assert (sessions[1][1].crowding, sessions[1][1].disturbed) == (1.0, 3)
    assert drift.clock_s == pytest.approx(2e-5)


def test_the_clock_of_an_earlier_campaign_is_what_sessions_refer_to(scripted, tmp_path):
    drift = Drift()
    drift.clock_s = 1.6e-5
    bench = probed(scripted, ((1.0, 1.0),))
    ((_, session),), _ = measure(copies(tmp_path, 1), bench, rounds=1, sentinel=SMALL, drift=drift)
    assert session.drift == pytest.approx(1.25)


def test_who_shares_the_core_is_waited_for(scripted, tmp_path):
    pauses, said = Pauses(measured_s=1000.0), []
    bench = replace(probed(scripted, ((1.0, 2.0),), alone=(1.0,) * 12), report=said.append)
    _, _, waited = corrected(bench, tmp_path, (1,), pauses=pauses)
    assert waited == []  # the visit right after it had the core for itself
    drift = Drift()
    for _ in range(3):
        drift.add(1e-6)
        drift.crowded(1.0)
    bench = replace(probed(scripted, ((1.0, 2.0),), alone=(2.0,) * 12), report=said.append)
    _, _, waited = corrected(bench, tmp_path, (1,), pauses=pauses, drift=drift)
    assert waited == [5, 10, 20, 40, 60, 60, 60]
    assert "waiting 5 s for it to recover" in said[0]
