"""The user's own ``executor_runner`` of ExecuTorch, made to keep to ``hwbench.runtimes.protocol``.

It runs one file per process and logs one line per execution, to stderr or, on Android, to the log of the system. So a
visit here is one process: a few executions that are thrown away, by the time that one takes, then the samples. What it
does not tell (processor time, switches, memory) is 0 in the answers.

What is known of a model, and the list of the visits, is read from the files here that were sent, not from the device.
"""

from __future__ import annotations

import json
import math
import re
import signal
import statistics
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwbench.devices import CommandResult, Process, Transport
from hwbench.devices.device_text import number as whole_number
from hwbench.devices.device_text import sections
from hwbench.errors import DeviceError, DeviceLost, HwbenchError, InvalidValue
from hwbench.runtimes.machine import hottest
from hwbench.runtimes.protocol import SENTINEL, Error, Options, parse_line
from hwbench.runtimes.pte_model import PteLayout, pte_layout
from hwbench.runtimes.python_models import arrays, mix
from hwbench.runtimes.python_runner import Entry, read_list, shuffled
from hwbench.runtimes.runners import Runner, describe_end
from hwbench.scratch import scratch_folder

# Nine digits of milliseconds are eleven days; of executions, more than any visit has.
_MS = r"([0-9]{1,9}(?:\.[0-9]{1,20})?) ms"
_ITERATION = re.compile(rf"Iteration ([0-9]{{1,9}}) of [0-9]{{1,9}}: {_MS}")
_LOADED = re.compile(rf"Model loaded in {_MS}")
_COMPLAINT = re.compile(r"^[EF] [0-9:.]+ executorch:[^ \n]*\] (.*)$", re.MULTILINE)
# Executions that tell how long one takes.
_PILOT = 3
# Samples of a visit on Android, whose log forgets what is old: a line takes some 125 bytes, and the smallest buffer has
# 64 KiB. Lines of the warm-up before them may be forgotten.
_MOST_LOGGED = 400
# Starting a process and loading a model, on top of the limit of the visit.
_LOAD_LIMIT_S = 60.0

# Runs the program; then says what it logged elsewhere, and the clock and the temperatures at its end.
_SCRIPT = r"""
cpu=$1; mask=$2; shift 2
if [ -n "$mask" ]; then taskset "$mask" "$@" & else "$@" & fi
pid=$!
trap 'kill -9 $pid 2>/dev/null' TERM HUP INT
wait $pid; status=$?
echo
if command -v logcat >/dev/null 2>&1; then echo "== log"; logcat -d -v raw -s ExecuTorch --pid=$pid 2>/dev/null; fi
echo "== clock"; cat "/sys/devices/system/cpu/cpu$cpu/cpufreq/scaling_cur_freq" 2>/dev/null
echo "== zones"
for zone in /sys/class/thermal/thermal_zone*; do
  [ -r "$zone/temp" ] && echo "$(cat "$zone/type" 2>/dev/null) $(cat "$zone/temp" 2>/dev/null)"
done
exit $status
"""


@dataclass(frozen=True)
class Answer:
    """What one process of it said: times of its executions and of loading in nanoseconds, 0 where unknown.

    ``in_system_log`` tells that the times came by Android's log, not by stderr.
    """

    executions_ns: tuple[int, ...]
    load_ns: int
    clock_khz: int
    temp_mc: int
    in_system_log: bool = False


class _Failed(Exception):
    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


class _TimedOut(Exception):
    pass


class UnusableRunner(DeviceError):
    """No file can be measured with this program; what is wrong with one file is that file's failure."""


@dataclass
class Upstream:
    """An ``executor_runner`` on a device, called as the other runners are.

    Args:
        transport: Open, to the device.
        runner: Its command.
        sent: The files here by their paths on the device.
    """

    transport: Transport
    runner: Runner
    sent: Mapping[str, Path] = field(default_factory=dict)
    _inputs: dict[str, str] = field(default_factory=dict)
    _folder: Path = Path()
    _has_logged: bool = False

    def run(self, options: Options, timeout_s: float) -> CommandResult:
        """Everything that a runner says to the end; errors as ``Transport.run``."""
        process = self.spawn(options)
        lines = []
        while (line := process.read_line(timeout_s)) is not None:
            lines.append(line + "\n")
        ended = process.wait(timeout_s)
        failed = bool(options.check) and any(isinstance(parse_line(line), Error) for line in lines)
        return CommandResult(ended.status or int(failed), "".join(lines), ended.stderr)

    def spawn(self, options: Options) -> Process:
        """The lines of a runner, as they come.

        Raises:
            DeviceLost: The device went away.
        """
        return _Lines(self._lines(options))

    def _lines(self, options: Options) -> Generator[str]:
        with scratch_folder() as folder:
            self._folder = folder
            yield self._start(options)
            yield from self._check(options) if options.check else self._rounds(options)

    def _start(self, options: Options) -> str:
        cpus = sorted(options.cpus)
        return _line("start", runner=self.runner.kind, versions={}, threads=options.threads, cpus=cpus, pid=0)

    def _rounds(self, options: Options) -> Iterator[str]:
        """Files with fewer visits join later, so that all are done in the last round."""
        entries = self._entries(options)
        rounds = max((entry.visits for entry in entries), default=0)
        sentinel = Entry(SENTINEL, options.sentinel, 0, failed=not options.sentinel or options.profile)
        pilots: dict[str, Answer] = {}
        counter, visited = mix(options.seed + 1), 0
        if rounds:
            yield from self._visit(sentinel, 0, SENTINEL, options, pilots)
        for number in range(rounds):
            active = [entry for entry in entries if entry.visits + number >= rounds and not entry.failed]
            order, counter = shuffled(len(active), counter)
            for at in order:
                yield from self._visit(active[at], number, "session", options, pilots)
                visited += 1
                if visited % options.sentinel_every == 0:
                    yield from self._visit(sentinel, number, SENTINEL, options, pilots)
        yield _line("end")

    def _entries(self, options: Options) -> list[Entry]:
        return read_list(str(self._here(options.list)), options.rounds)

    def _visit(
        self, entry: Entry, number: int, kind: str, options: Options, pilots: dict[str, Answer]
    ) -> Iterator[str]:
        if entry.failed:
            return
        yield _line("begin", id=entry.id, round=number)
        try:
            if options.profile:
                raise _Failed("run", "an executor_runner of your own tells no times of operations; take another runner")
            if options.cache != "warm":
                raise _Failed("run", "an executor_runner of your own takes warm caches only; take another runner")
            if entry.id not in pilots:
                first = self._execute(entry.path, 0, _PILOT, options)
                pilots[entry.id] = first
                yield _line("load", id=entry.id, load_ns=max(1, first.load_ns), first_ns=first.executions_ns[0])
            pilot = pilots[entry.id]
            warm, count = plan(pilot.executions_ns[1:], options)
            count = min(count, _MOST_LOGGED) if pilot.in_system_log else count
            start = time.monotonic_ns()
            answer = self._execute(entry.path, warm, count, options)
            yield _line(kind, id=entry.id, round=number, **_session(answer, start))
        except _Failed as failure:
            entry.failed = True
            yield _line("error", id=entry.id, stage=failure.stage, reason=str(failure))

    def _check(self, options: Options) -> Iterator[str]:
        output = self.transport.temporary(f"output-{time.monotonic_ns()}")
        try:
            layout = self._layout(options.check)
            if not layout.outputs:
                raise _Failed("run", "no tensor comes out")
            if any(list(one.order) != sorted(one.order) for one in (*layout.inputs, *layout.outputs)):
                raise _Failed("run", "input or output lie in another order than that of the axes; take another runner")
            answer = self._execute(options.check, 0, 1, options, f"--output_file={output}")
            moved = self.transport.run(["mv", f"{output}-0.bin", options.output], timeout_s=_LOAD_LIMIT_S)
            if options.output and not moved.ok:
                raise _Failed("run", f"it wrote no output: {moved.stderr.strip()}")
            shape = list(layout.outputs[0][0])
            yield _line("check", shape=shape, load_ns=max(1, answer.load_ns), first_ns=answer.executions_ns[0])
        except _Failed as failure:
            yield _line("error", id="check", stage=failure.stage, reason=str(failure))

    def _execute(self, path: str, warm: int, count: int, options: Options, *more: str) -> Answer:
        mask = f"{sum(1 << cpu for cpu in options.cpus):x}" if options.cpus else ""
        words = [
            *self.runner.command,
            f"--model_path={path}",
            f"--inputs={options.input or self._input(path)}",
            f"--num_executions={warm + count}",
            f"--cpu_threads={options.threads}",
            "--print_output=none",
            *more,
        ]
        argv = ["sh", "-c", _SCRIPT, "sh", str(min(options.cpus, default=0)), mask, *words]
        result = self.transport.run(argv, timeout_s=options.timeout_s + _LOAD_LIMIT_S, env=self.runner.env)
        answer = read_answer(result, warm + count, warm=warm, has_logged=self._has_logged)
        self._has_logged = True
        return answer

    def _here(self, path: str) -> Path:
        """The file here that lies at this path on the device: what the device sends back may be another.

        Raises:
            InvalidValue: None was sent there.
        """
        if path not in self.sent:
            raise InvalidValue(f"{path} was not sent from here; expected a file that the bench has pushed")
        return self.sent[path]

    def _layout(self, path: str) -> PteLayout:
        """Shapes and orders of the axes of a file that was sent to the device."""
        try:
            return pte_layout(self._here(path))
        except Exception as error:  # a bad file fails in the reader as it likes
            raise _Failed("load", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error

    def _input(self, path: str) -> str:
        """The numbers that every runner takes, in files on the device."""
        if path not in self._inputs:
            layout = self._layout(path)
            values = arrays([one.shape for one in layout.inputs], "")
            pushed: list[str] = []
            for number, (array, one) in enumerate(zip(values, layout.inputs, strict=True)):
                if one.dtype is None:
                    raise _Failed("load", f"input {number} is not float32")
                raw = Path(self._folder, f"input-{len(self._inputs)}-{len(pushed)}.raw")
                raw.write_bytes(array.transpose(one.order).astype(one.dtype).tobytes())
                pushed.append(self.transport.push(raw))
            self._inputs[path] = ",".join(pushed)
        return self._inputs[path]


def plan(executions_ns: Sequence[int], options: Options) -> tuple[int, int]:
    """How many executions to throw away and how many to take, by the time that one takes."""
    one_ms = max(statistics.median(executions_ns) / 1e6, 1e-6)
    warm = max(1, math.ceil(2 * options.warm_ms / one_ms))
    wanted = max(options.min_samples, math.ceil(options.min_ms / one_ms))
    return warm, max(1, min(wanted, math.ceil(options.max_ms / one_ms)))


def read_answer(result: CommandResult, count: int, *, warm: int = 0, has_logged: bool = False) -> Answer:
    """Reads what it logged of the executions that count.

    Args:
        result: What became of its process.
        count: Executions that it was asked for.
        warm: How many of them, the first ones, are thrown away; what it logged of them need not be there.
        has_logged: It has logged times before, so that a log without any is about this file.

    Raises:
        UnusableRunner: It does not start, cannot be bound to processors, or logs no times.
    """
    if result.timed_out:
        raise _TimedOut
    parts = sections(result.stdout)
    before = result.stdout.partition("\n== ")[0]
    log = "\n".join((before, parts.get("log", ""), result.stderr))
    times = {int(found[1]): round(float(found[2]) * 1e6) for found in _ITERATION.finditer(log)}
    loaded = _LOADED.search(log)
    if result.status in (126, 127):
        said = describe_end(result.status, result.stderr)
        raise UnusableRunner(f"the executor_runner cannot be started, or there is no taskset on the device: {said}")
    if result.status != 0:
        status = result.status if result.status < 128 else 128 - result.status  # as a shell says a signal
        complaints = _COMPLAINT.findall(log) or [log]
        raise _Failed("run" if loaded or times else "load", describe_end(status, complaints[-1]))
    kept = range(warm + 1, count + 1)
    missing = next((at for at in kept if at not in times), 0)
    if missing and (times or has_logged or "Iteration " in log):
        raise _Failed("parse", f"expected {count} lines 'Iteration N of M: x ms', no such line reads for N = {missing}")
    if missing:
        raise UnusableRunner(
            f"the executor_runner logged {len(times)} of {count} executions; expected lines 'Iteration N of M: x ms', "
            "as ExecuTorch 1.3 and newer write them when built with -DEXECUTORCH_ENABLE_LOGGING=ON"
        )
    return Answer(
        executions_ns=tuple(max(1, times[at]) for at in kept),
        load_ns=round(float(loaded[1]) * 1e6) if loaded else 0,
        clock_khz=whole_number(parts.get("clock", "")),
        temp_mc=_hottest(parts.get("zones", "")),
        in_system_log=_ITERATION.search(parts.get("log", "")) is not None,
    )


def _session(answer: Answer, start: int) -> dict[str, Any]:
    return {
        "samples_ns": list(answer.executions_ns),
        "wall_ns": sum(answer.executions_ns),
        "clock_khz": answer.clock_khz,
        "temp_mc": answer.temp_mc,
        "at_ns": (start + time.monotonic_ns()) // 2,
        **dict.fromkeys(("cpu_ns", "nivcsw", "majflt", "maxrss_kb"), 0),
    }


def _hottest(zones: str) -> int:
    named = [line.rpartition(" ") for line in zones.splitlines()]
    return hottest([(kind.lower(), temp) for kind, _, temp in named])


def _line(kind: str, **values: Any) -> str:
    return json.dumps({"kind": kind, **values})


class _Lines:
    """A process whose lines are made here, of processes there that end by themselves or by their time limit."""

    def __init__(self, lines: Generator[str]) -> None:
        self._lines = lines
        self._ended = CommandResult(0)

    def read_line(self, timeout_s: float) -> str | None:
        try:
            return next(self._lines, None)
        except _TimedOut:
            self._ended = CommandResult(-signal.SIGALRM)
            return None
        except (DeviceLost, DeviceError):
            raise
        except HwbenchError as error:
            self._ended = CommandResult(1, "", str(error))
            return None

    def kill(self) -> None:
        self._lines.close()

    def wait(self, timeout_s: float) -> CommandResult:
        return self._ended
