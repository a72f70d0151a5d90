"""The runner in Python: ``python -m hwbench.runtimes.python_runner``; same arguments and answers as the C++ one.

It serves ``.pte`` files where no C++ compiler exists, ``.onnx`` and ``.ts`` files in their engines, and eager PyTorch
(``.eager.json``) as the baseline to compare with. Contract: ``hwbench.runtimes.protocol``. A sample of a ``.pte`` holds
one call through the Python bindings, a few microseconds, that the C++ runner does not have.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import math
import os
import signal
import statistics
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hwbench.runtimes import usable
from hwbench.runtimes.machine import Machine
from hwbench.runtimes.protocol import CACHES, MAX_COPIES, SENTINEL, Options
from hwbench.runtimes.python_models import Model, ModelFailure, make_inputs, mix

# Executions that are traced at most: tracing keeps every event of each in memory until it is written.
PROFILED_RUNS = 100
# How soon threads of trainings sleep (``hwbench.interpreter.sharing_cores``): measured engines wait as they always do.
_OF_TRAININGS = "10000"


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


def warm_up(machine: Machine, model: Timed, warm_ms: float) -> None:
    """At least the time asked for, then until the executions are stable, at most four times as long."""
    runs: list[int] = []
    start, ms = machine.now_ns(), 0.0
    while ms < 4 * warm_ms and (ms < warm_ms or not stable(runs)):
        runs.append(model.run())
        ms = (machine.now_ns() - start) / 1e6


def sample(machine: Machine, model: Timed, options: Options, most: float = math.inf) -> list[int]:
    """The samples of one visit in nanoseconds; at least one, and no more than ``most``."""
    samples: list[int] = []
    start, ms = machine.now_ns(), 0.0
    while not samples or (ms < options.max_ms and (len(samples) < options.min_samples or ms < options.min_ms)):
        samples.append(model.run())
        ms = (machine.now_ns() - start) / 1e6
        if len(samples) >= most:
            break
    return samples


def time_session(machine: Machine, model: Timed, options: Options) -> dict[str, Any]:
    """Samples, and what the machine did meanwhile: the fields of a ``session`` line."""
    before, start = machine.usage(), machine.now_ns()
    samples = sample(machine, model, options)
    end, after = machine.now_ns(), machine.usage()
    return {
        "samples_ns": samples,
        "cpu_ns": after.cpu_ns - before.cpu_ns,
        "wall_ns": end - start,
        "nivcsw": after.nivcsw - before.nivcsw,
        "majflt": after.majflt - before.majflt,
        "maxrss_kb": machine.peak_memory_kb(),
        "clock_khz": machine.clock_khz(),
        "temp_mc": machine.temperature_mc(),
        "at_ns": start + (end - start) // 2,
    }


@dataclass
class Entry:
    """A file of the list; ``stays``: loaded between its visits."""

    id: str
    path: str
    visits: int
    model: Model | None = None
    timed: Timed | None = None
    failed: bool = False
    stays: bool = False


def read_list(path: str, rounds: int) -> list[Entry]:
    """Reads ``id<TAB>path[<TAB>visits]`` lines; a path may be any but one with a tab or an end of a line."""
    entries = []
    text = os.fsdecode(Path(path).read_bytes())
    for line in text.removesuffix("\n").split("\n") if text else ():
        id, file, *visits = line.split("\t")
        entries.append(Entry(id, file, int(visits[0]) if visits else rounds))
    return entries


class Flushed:
    """A file that finds the caches full of something else at every execution."""

    def __init__(self, machine: Machine, model: Model) -> None:
        self._machine = machine
        self._model = model

    def run(self) -> int:
        """As ``Model.run``."""
        self._machine.flush()
        return self._model.run()


class Rotated:
    """Copies of a file that take turns."""

    def __init__(self, copies: Sequence[Model]) -> None:
        self._copies = itertools.cycle(copies)

    def run(self) -> int:
        """As ``Model.run``."""
        return next(self._copies).run()


class Timed(Protocol):
    """What a visit needs of a model."""

    def run(self) -> int:
        """Executes once; returns the nanoseconds of the execution alone."""


def num_copies(file_bytes: int, cache_bytes: int) -> int:
    """So many copies are together at least twice as large as the last cache; at most ``MAX_COPIES``."""
    return min(max(-(-2 * cache_bytes // max(file_bytes, 1)), 2), MAX_COPIES)


Answer = dict[str, Any]


class RunnerSession:
    """One run of the runner: what it answers, as an iterator, so that each answer is out before the next step."""

    def __init__(self, options: Options, machine: Machine | None = None) -> None:
        self.options = options
        self.machine = machine or Machine()
        self.status = 0

    def answers(self) -> Generator[Answer, None, None]:
        """Everything, from ``start`` to the end; afterwards ``status`` is the exit status."""
        yield self.start()
        yield from self.check() if self.options.check else self.rounds()

    def start(self) -> Answer:
        """Who we are."""
        engines = sorted({package for known in usable().values() for package in known.packages[:1]})
        versions = {name: _version(name) for name in engines}
        cpus = self.machine.cpus()
        return _answer(
            "start", runner="python", versions=versions, threads=self.options.threads, cpus=cpus, pid=os.getpid()
        )

    def visit(self, entry: Entry, number: int, kind: str) -> Iterator[Answer]:
        """Loads the file unless it stayed loaded. ``begin`` comes before it is touched, so that a crash has a name."""
        if entry.failed:
            return
        self.machine.limit(self.options.timeout_s)
        yield _answer("begin", id=entry.id, round=number)
        try:
            if entry.model is None:
                yield self._load(entry)
            yield self._time(entry, number, kind)
        except ModelFailure as failure:
            entry.failed = True
            yield _answer("error", id=entry.id, stage=failure.stage, reason=str(failure))
        if entry.failed or not entry.stays:
            entry.model = entry.timed = None
        self.machine.limit(0)

    def _load(self, entry: Entry) -> Answer:
        self.machine.load_engine(entry.path, self.options.threads)
        start = self.machine.now_ns()
        model = self.machine.load(entry.path, self.options)
        load_ns = self.machine.now_ns() - start
        make_inputs(model)
        first_ns = model.run()
        entry.model, entry.timed = model, self._in_cache_state(entry, model)
        return _answer("load", id=entry.id, load_ns=load_ns, first_ns=first_ns)

    def _in_cache_state(self, entry: Entry, model: Model) -> Timed:
        machine, options = self.machine, self.options
        if options.cache == "flush":
            return Flushed(machine, model)
        if options.cache == "rotate":
            count = num_copies(os.path.getsize(entry.path), machine.last_cache_bytes())
            copies = [machine.load(entry.path, options) for _ in range(count - 1)]
            for copy in copies:
                make_inputs(copy)
            return Rotated([model, *copies])
        return model

    def _time(self, entry: Entry, number: int, kind: str) -> Answer:
        model, timed = entry.model, entry.timed
        assert model is not None
        assert timed is not None
        with self.machine.collecting_before():
            warm_up(self.machine, timed, self.options.warm_ms)
            if not self.options.profile:
                return _answer(kind, id=entry.id, round=number, **time_session(self.machine, timed, self.options))
        # As many executions are traced, so that both together take twice the time that is asked for.
        samples = sample(self.machine, model, self.options, most=PROFILED_RUNS)
        operations = model.operations(len(samples))
        total = round(statistics.median(getattr(model, "traced_ns", samples)))
        return _answer("ops", id=entry.id, total_ns=total, ops=operations)

    def rounds(self) -> Iterator[Answer]:
        """Files with fewer visits join later, so that all are done in the last round."""
        options = self.options
        entries = read_list(options.list, options.rounds)
        rounds = max((entry.visits for entry in entries), default=0)
        sentinel = Entry(SENTINEL, options.sentinel, 0, failed=not options.sentinel or options.profile, stays=True)
        counter, visited = mix(options.seed + 1), 0
        if rounds:
            yield from self.visit(sentinel, 0, "sentinel")
        for number in range(rounds):
            active = [entry for entry in entries if entry.visits + number >= rounds and not entry.failed]
            order, counter = shuffled(len(active), counter)
            for at in order:
                yield from self.visit(active[at], number, "session")
                visited += 1
                if visited % options.sentinel_every == 0:
                    yield from self.visit(sentinel, number, "sentinel")
        yield _answer("end")

    def check(self) -> Iterator[Answer]:
        """One execution of one file, of a stream one for each frame of its input; the outputs go to a file one after
        the other, as raw float32 in the order of their axes.
        """
        options, machine = self.options, self.machine
        machine.load_engine(options.check, options.threads)
        machine.limit(options.timeout_s)
        try:
            start = machine.now_ns()
            model = machine.load(options.check, options)
            load_ns = machine.now_ns() - start
            make_inputs(model)
            first_ns = model.run()
            outputs = [model.output().copy()]
            for frame in getattr(model, "later_frames", ()):
                model.feed(frame)
                model.run()
                outputs.append(model.output().copy())
            output = np.concatenate(outputs) if len(outputs) > 1 else outputs[0]
        except ModelFailure as failure:
            self.status = 1
            yield _answer("error", id="check", stage=failure.stage, reason=str(failure))
            return
        try:
            if options.output:
                Path(options.output).write_bytes(output.tobytes())
        except OSError as error:
            self.status = 1
            yield _answer("error", id="check", stage="write", reason=f"{options.output}: {error.strerror}")
            return
        yield _answer("check", shape=list(output.shape), load_ns=load_ns, first_ns=first_ns)


def _answer(kind: str, **values: Any) -> Answer:
    return {"kind": kind, **values}


def encode(answer: Answer) -> str:
    """An answer as one line, without the line end."""
    return json.dumps(answer, separators=(",", ":"))


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def parse(argv: Sequence[str]) -> Options:
    """Reads the arguments and binds the process to its processors; a wrong one ends the process with status 2."""
    parser, options = read_arguments(argv)
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


def read_arguments(argv: Sequence[str]) -> tuple[argparse.ArgumentParser, Options]:
    """Reads the arguments of ``hwbench.runtimes.protocol``; a wrong one ends the process with status 2."""
    parser = argparse.ArgumentParser(prog="python_runner", allow_abbrev=False)
    readers: Mapping[type, Callable[[str], Any]] = {str: str, int: int, float: float, tuple: _cpus}
    for option in fields(Options):
        name = f"--{option.name.replace('_', '-')}"
        if isinstance(option.default, bool):
            parser.add_argument(name, action="store_true")
        elif option.name == "cache":
            parser.add_argument(name, choices=CACHES, default=option.default)
        else:
            parser.add_argument(name, type=readers[type(option.default)], default=option.default)
    options = Options(**vars(parser.parse_args(argv)))
    if bool(options.list) == bool(options.check):
        parser.error("give --list FILE or --check FILE")
    if min(options.threads, options.sentinel_every) < 1:
        parser.error("--threads and --sentinel-every start at 1")
    return parser, options


def _cpus(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def main() -> int:
    """Runs as a process of its own: stdout is kept for answers, what libraries print goes to stderr."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if os.environ.get("GOMP_SPINCOUNT") == _OF_TRAININGS:
        del os.environ["GOMP_SPINCOUNT"]
    options = parse(sys.argv[1:])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = RunnerSession(options)
    for answer in session.answers():
        out.write(encode(answer) + "\n")
        out.flush()
    return session.status


if __name__ == "__main__":
    sys.exit(main())
