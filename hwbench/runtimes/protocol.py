"""What a runner is asked and what it answers. ``native/runner.cpp`` and ``python_runner.py`` both keep to this page.

A runner is one process on the device which takes many files. Arguments, times in milliseconds:

    --list FILE            the files, one line ``id<TAB>path[<TAB>visits]`` each; visits defaults to --rounds
    --rounds R --seed S    each round visits every file once in fresh random order
    --warm-ms T            warm-up of a visit: at least T, then until both halves of ten executions agree to 2 %,
                           at most 4 T
    --min-samples N --min-ms T --max-ms T
                           a visit ends after N executions and T, or at the maximum; at least one execution is taken
    --threads N --cpus 0,1 threads of the engine (1: no pool) and the processors that the process is bound to
    --sentinel FILE --sentinel-every K
                           a reference file, visited first and after every K visits
    --cache STATE          before each execution: warm (nothing is done), rotate (copies of the file take turns which do
                           not fit into the last cache together), flush (twice the last cache is written over)
    --timeout-s T          limit of one visit, kept by the runner itself: it ends by SIGALRM
    --probe                keep only samples that were taken while no other program shared the core, as two short loops
                           before and after them tell, and begin while the memory is free, as sweeps over 4 MB tell;
                           ignored by runners in Python
    --quiet-ppm N          the crowding_ppm of a core that nothing else uses, where it is known; 0: it is found out
    --memory-ppm N         the memory_ppm of memory that nothing else uses, where it is known; 0: none is waited for
    --profile              per-operation times instead of samples; never both, for the tracer adds to each operation
    --check FILE [--input FILE] [--output FILE]
                           no timing: load, run once on raw float32 input, write the first output as raw float32; a
                           stream runs once for each frame of its input, its answers follow each other along axis N

A file is loaded anew for each of its visits: something that loading settles, most likely where memory comes to lie,
moves small files by up to several per cent (experiment 010), so that the sessions of one loading agree with each other
to less than they differ from the next one's. The sentinel stays loaded, since it is to tell what changes around it. A
file with fewer visits than others joins in later rounds. A file that fails to load or to run is reported and left out.
Inputs that are not given are uniform in [-1, 1), the same numbers in every runner. Before each execution the input is
set anew, outside the timed part; a sample is the wall time of the execution alone, CLOCK_MONOTONIC.

Answers are JSON objects, one per line, flushed, told apart by ``kind``:

    start     runner, versions, threads, cpus (as they are, not as asked), pid
    begin     id, round: comes before a file is touched, so that a crash has a name
    load      id, load_ns, first_ns: time of loading, inputs not included, and of the first execution; in each visit
    session   id, round, samples_ns, cpu_ns, wall_ns (of all samples together), nivcsw, majflt, maxrss_kb, clock_khz,
              temp_mc (0: unknown), at_ns (middle of the session); with --probe also probe_ns (time of a fixed chain of
              dependent operations: the clock), crowding_ppm (a millionth: time of independent operations over that of
              the chain; more than usual where another program shares the core), memory_ppm (likewise: time of a sweep
              over memory over that of the chain, the longer one of before and after; 0: unknown) and disturbed (samples
              taken while another program shared the core: thrown away, except where there are hardly others)
    sentinel  as session
    ops       id, total_ns, ops: [[name, ns, executions], ...] in the order of execution, wrappers included
    check     shape, load_ns, first_ns
    error     id, stage (load or run; write: the output of a check; parse: what another program said could not be read),
              reason
    end       all visits are done

Exit status 2 says that the arguments are wrong, 1 that a check failed (an ``error`` line says how).

A runner is on a device, which may be broken or worse, so no line is believed: ``parse_line`` bounds lengths, depths and
numbers, and what it returns can be computed with and stored as it is. Whole numbers are from 0 to 2**63 - 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hwbench.printable import printable

VERSION = 4
"""Rises when a sample of a new runner, or what its sessions vary by, means something else than before."""

CACHES = ("warm", "rotate", "flush")
"""States of the caches; ``hwbench.specs.CacheState`` says what they mean."""

# Where the machine does not tell how large its last cache is, and the least that is believed.
UNKNOWN_CACHE_BYTES, LEAST_CACHE_BYTES = 8 << 20, 4 << 20
MAX_COPIES = 32

SENTINEL = "sentinel"
"""The id under which the reference file is reported."""

# A visit to an operation of a microsecond, a hundred times as long as usual, has ten million characters of samples.
MAX_LINE_CHARS = 1 << 24
# What runners count in, and the most that SQLite stores.
MAX_NUMBER = (1 << 63) - 1
# The kernel's own limit of processors; no tensor of a model has so many axes.
MAX_CPUS, MAX_AXES = 8192, 64
# A reason is read by people; names of operations have up to some hundred characters.
MAX_REASON, MAX_NAME = 2000, 1000

# Events that only wrap others.
WRAPPERS = frozenset({"Method::execute", "OPERATOR_CALL", "DELEGATE_CALL"})


@dataclass(frozen=True)
class Options:
    """Arguments of a runner; see the top of this file. ``list``, ``sentinel`` and so on are paths on the device."""

    list: str = ""
    check: str = ""
    input: str = ""
    output: str = ""
    cache: str = "warm"
    sentinel: str = ""
    rounds: int = 1
    seed: int = 0
    min_samples: int = 10
    sentinel_every: int = 10
    threads: int = 1
    timeout_s: int = 60
    quiet_ppm: int = 0
    memory_ppm: int = 0
    warm_ms: float = 50.0
    min_ms: float = 100.0
    max_ms: float = 2000.0
    cpus: tuple[int, ...] = ()
    probe: bool = False
    profile: bool = False

    def argv(self) -> tuple[str, ...]:
        """Command-line arguments; what has its default value is left out."""
        words: list[str] = []
        for option in fields(self):
            value = getattr(self, option.name)
            if value == option.default:
                continue
            words.append(f"--{option.name.replace('_', '-')}")
            if option.name == "cpus":
                words.append(",".join(map(str, value)))
            elif value is not True:
                words.append(str(value))
        return tuple(words)


class MalformedLine(ValueError):
    """A line that is none of the above."""


@dataclass(frozen=True)
class Start:
    """The runner is there."""

    runner: str
    versions: Mapping[str, str]
    threads: int
    cpus: tuple[int, ...]
    pid: int


@dataclass(frozen=True)
class Begin:
    """A visit begins."""

    id: str
    round: int


@dataclass(frozen=True)
class Load:
    """A file was loaded and executed for the first time."""

    id: str
    load_ns: int
    first_ns: int


@dataclass(frozen=True)
class Visit:
    """The samples of one visit, to a file of the list or to the sentinel."""

    id: str
    round: int
    samples_ns: tuple[int, ...]
    cpu_ns: int
    wall_ns: int
    nivcsw: int
    majflt: int
    maxrss_kb: int
    clock_khz: int
    temp_mc: int
    at_ns: int
    probe_ns: int = 0
    crowding_ppm: int = 0
    memory_ppm: int = 0
    disturbed: int = 0


@dataclass(frozen=True)
class Operations:
    """Mean time of each operation, in the order of execution."""

    id: str
    total_ns: int
    ops: tuple[tuple[str, float, int], ...] = field(default=())


@dataclass(frozen=True)
class FileChecked:
    """A file was loaded and run once."""

    shape: tuple[int, ...]
    load_ns: int
    first_ns: int


@dataclass(frozen=True)
class Error:
    """A file failed, at ``stage`` load or run; at ``write`` the runner could not write what came out of it."""

    id: str
    stage: str
    reason: str


@dataclass(frozen=True)
class End:
    """All visits are done."""


Message = Start | Begin | Load | Visit | Operations | FileChecked | Error | End


def parse_line(line: str) -> Message:
    """Reads one line of a runner.

    Raises:
        MalformedLine: It is no message, a field is missing or of the wrong type, or a time is not above zero; too long,
            too deep, or a number out of range.
    """
    if len(line) > MAX_LINE_CHARS:
        raise MalformedLine(f"longer than {MAX_LINE_CHARS} characters: {line[:120]!r}")
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedLine(f"not JSON: {line[:120]!r}") from error
    if not isinstance(values, dict):
        raise MalformedLine(f"not an object: {line[:120]!r}")
    kind = values.pop("kind", None)
    try:
        return _message(kind, values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        name = printable(kind, 20) if isinstance(kind, str) else "unknown"
        raise MalformedLine(f"{name} line: {printable(str(error), 200)}: {line[:120]!r}") from error


def _message(kind: Any, values: Mapping[str, Any]) -> Message:
    match kind:
        case "start":
            versions = {_short(name): _short(value) for name, value in values["versions"].items()}
            return Start(
                _text(values, "runner"),
                versions,
                _count(values, "threads"),
                _counts(values, "cpus", MAX_CPUS),
                _count(values, "pid"),
            )
        case "begin":
            return Begin(_text(values, "id"), _count(values, "round"))
        case "load":
            return Load(_text(values, "id"), _time(values, "load_ns"), _time(values, "first_ns"))
        case "session" | "sentinel":
            return _visit(values)
        case "ops":
            ops = tuple(_operation(*words) for words in values["ops"])
            return Operations(_text(values, "id"), _time(values, "total_ns"), ops)
        case "check":
            return FileChecked(_counts(values, "shape", MAX_AXES), _time(values, "load_ns"), _time(values, "first_ns"))
        case "error":
            reason = _text(values, "reason", MAX_REASON) or "no reason was given"
            return Error(_text(values, "id"), _text(values, "stage"), reason)
        case "end":
            return End()
    raise ValueError("unknown kind")


def _visit(values: Mapping[str, Any]) -> Visit:
    samples = _counts(values, "samples_ns")
    if not samples or min(samples) <= 0:
        raise ValueError("samples_ns: expected at least one, all above zero")
    counts = ("nivcsw", "majflt", "maxrss_kb", "clock_khz", "temp_mc", "at_ns")
    probes = ("probe_ns", "crowding_ppm", "memory_ppm", "disturbed")
    return Visit(
        id=_text(values, "id"),
        round=_count(values, "round"),
        samples_ns=samples,
        cpu_ns=_count(values, "cpu_ns"),
        wall_ns=_time(values, "wall_ns"),
        **{name: _count(values, name) for name in counts},
        **{name: _count(values, name) for name in probes if name in values},
    )


def _operation(name: Any, ns: Any, count: Any) -> tuple[str, float, int]:
    if type(ns) not in (int, float) or not 0 <= ns <= MAX_NUMBER:
        raise ValueError("ops: expected finite times")
    return _short(name), float(ns), _count({"ops": count}, "ops")


def _text(values: Mapping[str, Any], name: str, limit: int = MAX_NAME) -> str:
    if not isinstance(values[name], str):
        raise TypeError(f"{name}: expected text")
    return printable(values[name][: 2 * limit], limit)


def _short(value: Any) -> str:
    return _text({"a name": value}, "a name")


def _count(values: Mapping[str, Any], name: str) -> int:
    value = values[name]
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise TypeError(f"{name}: expected a whole number from 0 to 2**63 - 1")
    return value


def _time(values: Mapping[str, Any], name: str) -> int:
    value = _count(values, name)
    if value == 0:
        raise ValueError(f"{name}: a time of zero")
    return value


def _counts(values: Mapping[str, Any], name: str, most: int = MAX_LINE_CHARS) -> tuple[int, ...]:
    if not isinstance(values[name], list) or len(values[name]) > most:
        raise TypeError(f"{name}: expected a list of at most {most}")
    return tuple(_count({name: value}, name) for value in values[name])


def leaves(ops: Sequence[tuple[str, float, int]]) -> tuple[tuple[str, float, int], ...]:
    """The operations themselves, without the events that wrap them, under their plain names."""
    return tuple((name.removeprefix("native_call_"), ns, count) for name, ns, count in ops if name not in WRAPPERS)
