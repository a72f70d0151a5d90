"""The runner in Python: ``python -m hwbench.runtimes.python_runner``; same arguments and answers as the C++ one.

It serves ``.pte`` files where no C++ compiler exists, ``.onnx`` and ``.ts`` files in their engines, and eager PyTorch
(``.eager.json``) as the baseline to compare with. Contract: ``hwbench.runtimes.protocol``. A sample of a ``.pte`` holds
one call through the Python bindings, a few microseconds, that the C++ runner does not have.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import json
import os
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

from hwbench.runtimes.protocol import SENTINEL, Options
from hwbench.runtimes.python_models import Failure, Model, load_engine, load_model, mix

# Names of thermal zones of processors: x86, Qualcomm and MediaTek, Samsung and Google, Rockchip.
PROCESSOR_ZONES = ("cpu", "pkg", "big", "mid", "little", "core", "soc")
# Tracing keeps every event of every execution in memory until it is written.
PROFILED_RUNS = 100


def shuffled(count: int, counter: int) -> tuple[list[int], int]:
    """A permutation of ``range(count)`` by Fisher-Yates, and the counter to go on with."""
    order = list(range(count))
    for i in range(count, 1, -1):
        counter += 1
        j = mix(counter) % i
        order[i - 1], order[j] = order[j], order[i - 1]
    return order, counter


def stable(runs: Sequence[int]) -> bool:
    """The last five executions are as fast as the five before, to 2 %."""
    if len(runs) < 10:
        return False
    before, after = statistics.median(runs[-10:-5]), statistics.median(runs[-5:])
    return abs(after - before) <= before / 50


def warm_up(model: Model, warm_ms: float) -> None:
    """At least the time asked for, then until the executions are stable, at most four times as long."""
    runs: list[int] = []
    start, ms = time.monotonic_ns(), 0.0
    while ms < 4 * warm_ms and (ms < warm_ms or not stable(runs)):
        runs.append(model.run())
        ms = (time.monotonic_ns() - start) / 1e6


def sample(model: Model, options: Options) -> list[int]:
    """The samples of one visit in nanoseconds; the garbage collector waits until they are taken."""
    samples: list[int] = []
    gc.disable()
    try:
        start, ms = time.monotonic_ns(), 0.0
        while not samples or (ms < options.max_ms and (len(samples) < options.min_samples or ms < options.min_ms)):
            samples.append(model.run())
            ms = (time.monotonic_ns() - start) / 1e6
    finally:
        gc.enable()
    return samples


def time_session(model: Model, options: Options) -> dict[str, Any]:
    """Samples, and what the machine did meanwhile: the fields of a ``session`` line."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    cpu, wall = time.process_time_ns(), time.monotonic_ns()
    samples = sample(model, options)
    end, cpu_end = time.monotonic_ns(), time.process_time_ns()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "samples_ns": samples,
        "cpu_ns": cpu_end - cpu,
        "wall_ns": end - wall,
        "nivcsw": after.ru_nivcsw - before.ru_nivcsw,
        "majflt": after.ru_majflt - before.ru_majflt,
        "maxrss_kb": after.ru_maxrss,
        "clock_khz": clock_khz(),
        "temp_mc": temperature_mc(),
        "at_ns": wall + (end - wall) // 2,
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def clock_khz() -> int:
    """Clock of the first processor we are bound to; 0: unknown."""
    cpu = min(os.sched_getaffinity(0))
    return _number(_read(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"))


def temperature_mc() -> int:
    """Hottest thermal zone of the processors (of all kinds where none is called so), in millidegrees; 0: unknown."""
    return hottest([(_read(f"{folder}/type").lower(), _read(f"{folder}/temp")) for folder in _thermal_zones()])


def hottest(zones: Sequence[tuple[str, str]]) -> int:
    """Of (kind, reading): the hottest of the processors, else of all, in millidegrees; 0: unknown."""
    processors = [reading for kind, reading in zones if any(part in kind for part in PROCESSOR_ZONES)]
    return max(map(millidegrees, processors or [reading for _, reading in zones]), default=0)


def millidegrees(reading: str) -> int:
    """Zones tell millidegrees, some old phones' tenths or whole degrees; 0 for what no sensor of a phone can mean."""
    value = _number(reading)
    if 0 < value < 150:
        return value * 1000
    if 150 <= value < 1500:
        return value * 100
    return value if value < 150_000 else 0


def _thermal_zones() -> list[str]:
    return [str(folder) for folder in Path("/sys/class/thermal").glob("thermal_zone*")]


@dataclass
class Entry:
    """A file of the list."""

    id: str
    path: str
    visits: int
    model: Model | None = None
    failed: bool = False


def read_list(path: str, rounds: int) -> list[Entry]:
    """Reads ``id<TAB>path[<TAB>visits]`` lines."""
    entries = []
    for line in Path(path).read_text().splitlines():
        id, file, *visits = line.split("\t")
        entries.append(Entry(id, file, int(visits[0]) if visits else rounds))
    return entries


class Session:
    """One process of the runner: its options and the stream of its answers."""

    def __init__(self, options: Options, out: IO[str]) -> None:
        self.options = options
        self._out = out

    def write(self, kind: str, **values: Any) -> None:
        """One answer, flushed."""
        self._out.write(json.dumps({"kind": kind, **values}, separators=(",", ":")) + "\n")
        self._out.flush()

    def start(self) -> None:
        """Says who we are."""
        versions = {name: _version(name) for name in ("executorch", "onnxruntime", "torch")}
        cpus = sorted(os.sched_getaffinity(0))
        self.write(
            "start", runner="python", versions=versions, threads=self.options.threads, cpus=cpus, pid=os.getpid()
        )

    def visit(self, entry: Entry, number: int, kind: str) -> None:
        """Loads on the first visit. ``begin`` comes before the file is touched, so that a crash has a name."""
        if entry.failed:
            return
        signal.alarm(self.options.timeout_s)
        self.write("begin", id=entry.id, round=number)
        try:
            model = entry.model or self._load(entry)
            gc.collect()
            warm_up(model, self.options.warm_ms)
            if self.options.profile:
                total = round(statistics.median(model.run() for _ in range(10)))
                self.write("ops", id=entry.id, total_ns=total, ops=model.operations(PROFILED_RUNS))
            else:
                self.write(kind, id=entry.id, round=number, **time_session(model, self.options))
        except Failure as failure:
            entry.failed, entry.model = True, None
            self.write("error", id=entry.id, stage=failure.stage, reason=str(failure))
        signal.alarm(0)

    def _load(self, entry: Entry) -> Model:
        load_engine(entry.path, self.options.threads)
        start = time.monotonic_ns()
        model = load_model(entry.path, self.options)
        load_ns = time.monotonic_ns() - start
        first_ns = model.run()
        self.write("load", id=entry.id, load_ns=load_ns, first_ns=first_ns)
        entry.model = model
        return model

    def rounds(self) -> int:
        """Files with fewer visits join later, so that all are done in the last round."""
        options = self.options
        entries = read_list(options.list, options.rounds)
        rounds = max((entry.visits for entry in entries), default=0)
        sentinel = Entry(SENTINEL, options.sentinel, 0, failed=not options.sentinel or options.profile)
        counter, visited = mix(options.seed + 1), 0
        if rounds:
            self.visit(sentinel, 0, "sentinel")
        for number in range(rounds):
            active = [entry for entry in entries if entry.visits + number >= rounds and not entry.failed]
            order, counter = shuffled(len(active), counter)
            for at in order:
                self.visit(active[at], number, "session")
                visited += 1
                if visited % options.sentinel_every == 0:
                    self.visit(sentinel, number, "sentinel")
        self.write("end")
        return 0

    def check(self) -> int:
        """One execution of one file; the output goes to a file as raw float32 in the order of its axes."""
        load_engine(self.options.check, self.options.threads)
        signal.alarm(self.options.timeout_s)
        try:
            start = time.monotonic_ns()
            model = load_model(self.options.check, self.options)
            load_ns = time.monotonic_ns() - start
            first_ns = model.run()
            output = model.output()
        except Failure as failure:
            self.write("error", id="check", stage=failure.stage, reason=str(failure))
            return 1
        if self.options.output:
            output.tofile(self.options.output)
        self.write("check", shape=list(output.shape), load_ns=load_ns, first_ns=first_ns)
        return 0


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def parse(argv: Sequence[str]) -> Options:
    """Reads the arguments of ``hwbench.runtimes.protocol``; a wrong one ends the process with status 2."""
    parser = argparse.ArgumentParser(prog="python_runner", allow_abbrev=False)
    readers: Mapping[type, Callable[[str], Any]] = {str: str, int: int, float: float, tuple: _cpus}
    for option in fields(Options):
        name = f"--{option.name.replace('_', '-')}"
        if option.name == "profile":
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(name, type=readers[type(option.default)], default=option.default)
    options = Options(**vars(parser.parse_args(argv)))
    if bool(options.list) == bool(options.check):
        parser.error("give --list FILE or --check FILE")
    if min(options.threads, options.sentinel_every) < 1:
        parser.error("--threads and --sentinel-every start at 1")
    try:
        if options.list:
            read_list(options.list, options.rounds)
    except (OSError, ValueError) as error:
        parser.error(f"--list {options.list}: {error}")
    usable = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        if options.cpus:
            os.sched_setaffinity(0, options.cpus)
    if options.cpus and os.sched_getaffinity(0) != set(options.cpus):
        wanted, known = (",".join(map(str, cpus)) for cpus in (options.cpus, sorted(usable)))
        parser.error(f"--cpus {wanted}: not all of these processors are there and allowed; usable: {known}")
    return options


def _cpus(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def main() -> int:
    """Runs as a process of its own: stdout is kept for answers, what libraries print goes to stderr."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    options = parse(sys.argv[1:])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = Session(options, out)
    session.start()
    return session.check() if options.check else session.rounds()


if __name__ == "__main__":
    sys.exit(main())
