"""A simulated phone whose true latencies are known, to prove the measuring protocol on what real phones do.

It stands where a device stands: it is a ``Transport`` whose one program is a runner, and that runner is the loop of
``hwbench.runtimes.python_runner`` on a ``Machine`` in virtual time. So the warm-up, the orders, the lines of the
protocol, and all host code from ``measure_sessions`` to the store are the real ones; only time and speed are not.

What disturbs it, and where the sizes come from (published figures, no phone of ours):

* Clock: a governor raises it step by step while the core is busy and drops it when idle; a first run after a pause is
  several times slower (EdgeGate, Galaxy S24: 7.3 times the median).
* Heat: one thermal resistance and capacity; above trip points the clock is capped (same phone, 32 or 45 °C: 40 %).
* Preemption: short, with a heavy tail (S24: spread of 8 % with a largest over smallest sample of 1.9).
* Placement: without pinning, a thread starts on a little core and falls back to one now and then.
* Neighbours: background work for seconds, which takes memory bandwidth and preempts more often.
* Caches: the first executions after another file ran are slower.
* Loading: each load of a file has a speed of its own (Kalibera and Jones 2013: variation between executions).
* Drift: the speed wanders by a percent or two within minutes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from hwbench.devices import CommandResult
from hwbench.devices.base import MOST_PULL_BYTES
from hwbench.errors import DeviceError, WorkspaceError
from hwbench.latency import macs, operations
from hwbench.runtimes.machine import Machine, Usage
from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, Operation
from hwbench.runtimes.python_runner import RunnerSession, encode, read_arguments
from hwbench.specs import Artifact, DelegationReport, Workload

LITTLE, BIG = (0, 1, 2, 3), (4, 5, 6, 7)


@dataclass(frozen=True)
class Cost:
    """The true latency of a file in seconds, on a big core at its highest clock, warm and undisturbed.

    ``compute_s`` goes with the clock of the core; ``memory_s`` does not.
    """

    compute_s: float
    memory_s: float

    @property
    def seconds(self) -> float:
        """The true latency."""
        return self.compute_s + self.memory_s


def work_cost(workload: Workload) -> Cost:
    """20 billion multiply-adds a second, and 8 GB/s for what the operations read and write in float32."""
    values = sum(one.input.numel + one.output.numel for one in operations(workload))
    return Cost(5e-6 + macs(workload) / 20e9, 4 * values / 8e9)


@dataclass(frozen=True)
class Phone:
    """What a phone is like; times in seconds, rates per second, temperatures in degrees Celsius."""

    clocks_hz: tuple[float, ...] = (0.65e9, 0.96e9, 1.25e9, 1.55e9, 1.8e9, 2.1e9, 2.4e9)
    governor_s: float = 0.01
    up_load: float = 0.8
    down_load: float = 0.4
    up_ticks: int = 2  # busy periods before the next step up

    ambient: float = 25.0
    rise: float = 55.0  # above ambient, at the highest clock for ever
    thermal_s: float = 60.0
    trips: tuple[float, ...] = (58.0, 63.0, 68.0, 73.0)  # each takes one step of the clock away
    hysteresis: float = 3.0

    preemptions: float = 8.0
    preempted_s: float = 0.0003
    tail: float = 1.3  # exponent of the Pareto distribution of their lengths
    longest_s: float = 0.04

    little_compute: float = 2.7
    little_memory: float = 1.6
    misplacements: float = 0.15
    misplaced_s: float = 0.5
    up_migration_s: float = 0.06

    bursts: float = 1 / 60
    burst_s: float = 5.0
    burst_compute: float = 1.03
    burst_memory: float = 1.25
    burst_preemptions: float = 10.0  # times as many

    cold_memory: float = 2.0  # extra share of memory time in the first execution after another file, halved each time
    first_run: float = 3.0
    load_s: float = 0.02
    load_spread: float = 0.004

    drift: float = 0.015
    drift_s: float = 300.0
    jitter: float = 0.01

    start_s: float = 0.3  # start of a process, way to the phone included


QUIET = Phone(
    rise=0.0, preemptions=0.0, misplacements=0.0, bursts=0.0, load_spread=0.0, drift=0.0, jitter=0.0, cold_memory=0.0
)
"""A phone with nothing but its governor: what is measured on it is the truth, once the clock is up."""


class PhoneMachine(Machine):
    """A phone in virtual time; ``now_s`` is how late it is. Everything that is random comes from ``seed``."""

    def __init__(self, phone: Phone | None = None, seed: int = 0) -> None:
        self.phone = phone or Phone()
        self.now_s = 0.0
        self.temperature = self.phone.ambient + 3.0
        self._chance = random.Random(seed)
        # Drawing a normal number for every execution would take longer than all the rest.
        self._jitter = np.exp(self.phone.jitter * np.random.default_rng(seed).standard_normal(8191)).tolist()
        self._executed = 0
        self._level = 0
        self._cap = len(self.phone.clocks_hz) - 1
        self._busy_ticks = 0
        self._busy_s = 0.0
        self._cpu_s = 0.0
        self._switches = 0
        self._drift = 0.0
        self._burst = False
        self._little = False
        self._pinned: tuple[int, ...] = ()
        self._last: object = None
        self._since = 0
        self._tick_at = self.phone.governor_s
        self._preempt_at = self._wait(self.phone.preemptions)
        self._burst_at = self._wait(self.phone.bursts)
        self._move_at = math.inf
        self._look_ahead()

    # What the runner sees.

    def load_engine(self, path: str, threads: int) -> None:
        if threads != 1:
            raise ModelFailure("load", f"the simulated phone runs one thread, not {threads}")

    def load(self, path: str, options: Options) -> SimulatedModel:
        try:
            cost = Cost(**json.loads(Path(path).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise ModelFailure("load", f"no simulated file: {error}") from error
        self.idle(self.phone.load_s)
        factor = math.exp(self._chance.gauss(0.0, self.phone.load_spread))
        return SimulatedModel(self, Cost(cost.compute_s * factor, cost.memory_s * factor))

    def now_ns(self) -> int:
        return int(self.now_s * 1e9)

    def usage(self) -> Usage:
        return Usage(int(self._cpu_s * 1e9), self._switches, 0)

    def peak_memory_kb(self) -> int:
        return 50_000

    def cpus(self) -> list[int]:
        return list(self._pinned or LITTLE + BIG)

    def clock_khz(self) -> int:
        return round(self.phone.clocks_hz[self._level] / 1e3)

    def temperature_mc(self) -> int:
        return round(self.temperature * 1e3)

    def last_cache_bytes(self) -> int:
        return 100  # a simulated file is some fifty bytes long

    def flush(self) -> None:
        self._last = None

    def limit(self, seconds: int) -> None:
        pass

    @contextmanager
    def collecting_before(self) -> Iterator[None]:
        yield

    # What happens in it.

    def start(self, cpus: Sequence[int]) -> None:
        """A process starts, bound to these processors; an unbound one starts on a little core."""
        self.idle(self.phone.start_s)
        self._pinned = tuple(sorted(cpus))
        self._little = not cpus or any(cpu in LITTLE for cpu in cpus)
        self._move_at = math.inf if cpus else self.now_s + self.phone.up_migration_s
        self._look_ahead()

    def idle(self, seconds: float) -> None:
        """Nothing runs for a while: the clock falls and the phone cools."""
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s = min(max(self._next_at, self.now_s), end)
            if self.now_s >= self._next_at:
                self._happen(running=False)

    def execute(self, cost: Cost, model: object) -> float:
        """Runs a file once; returns the seconds that it took."""
        start, jitter = self.now_s, self._jitter[self._executed % 8191]
        self._executed += 1
        self._since = self._since + 1 if model is self._last else 0
        self._last = model
        cold = self.phone.cold_memory * 0.5**self._since if self._since < 12 else 0.0
        compute, memory, left = cost.compute_s * jitter, cost.memory_s * jitter * (1 + cold), 1.0
        while True:
            whole = compute * self._compute + memory * self._memory
            seconds = whole * left
            if self.now_s + seconds <= self._next_at:
                break
            ran = max(self._next_at - self.now_s, 0.0)
            left -= ran / whole
            self.now_s += ran
            self._cpu_s += ran
            self._busy_s += ran
            self._happen(running=True)
        self.now_s += seconds
        self._cpu_s += seconds
        self._busy_s += seconds
        return self.now_s - start

    def _wait(self, rate: float) -> float:
        return self.now_s + self._chance.expovariate(rate) if rate else math.inf

    def _happen(self, *, running: bool) -> None:
        """Whatever is due now."""
        if self.now_s >= self._preempt_at:
            self._preempt(running)
        if self.now_s >= self._burst_at:
            self._burst = not self._burst
            self._burst_at = self._wait(1 / self.phone.burst_s if self._burst else self.phone.bursts)
            self._preempt_at = self._wait(self._preemptions)
        if self.now_s >= self._move_at:
            self._little = not self._little
            self._move_at = self._wait(1 / self.phone.misplaced_s if self._little else self.phone.misplacements)
        if self.now_s >= self._tick_at:
            self._tick()
        self._look_ahead()

    @property
    def _preemptions(self) -> float:
        return self.phone.preemptions * (self.phone.burst_preemptions if self._burst else 1.0)

    def _preempt(self, running: bool) -> None:
        if running:
            length = min(self.phone.preempted_s * self._chance.paretovariate(self.phone.tail), self.phone.longest_s)
            self.now_s += length
            self._busy_s += length
            self._switches += 1
        self._preempt_at = self._wait(self._preemptions)

    def _tick(self) -> None:
        phone = self.phone
        passed = self.now_s - self._tick_at + phone.governor_s
        load = min(self._busy_s / passed, 1.0)
        self._busy_s, self._tick_at = 0.0, self.now_s + phone.governor_s
        self._govern(load)
        power = load * (phone.clocks_hz[self._level] / phone.clocks_hz[-1]) ** 3
        self.temperature += (phone.ambient + phone.rise * power - self.temperature) * passed / phone.thermal_s
        steps = len(phone.clocks_hz) - 1 - self._cap
        if steps < len(phone.trips) and self.temperature > phone.trips[steps]:
            self._cap -= 1
        elif steps and self.temperature < phone.trips[steps - 1] - phone.hysteresis:
            self._cap += 1
        if phone.drift:
            step = phone.drift * math.sqrt(2 * passed / phone.drift_s)
            self._drift += -self._drift * passed / phone.drift_s + self._chance.gauss(0.0, step)

    def _govern(self, load: float) -> None:
        self._busy_ticks = self._busy_ticks + 1 if load > self.phone.up_load else 0
        if self._busy_ticks >= self.phone.up_ticks:
            self._level, self._busy_ticks = self._level + 1, 0
        elif load < self.phone.down_load:
            self._level = max(self._level - 1, 0)
        self._level = min(self._level, self._cap)

    def _look_ahead(self) -> None:
        """How slow the phone is until the next thing happens, and when that is."""
        phone, drift = self.phone, math.exp(self._drift)
        clock = phone.clocks_hz[-1] / phone.clocks_hz[self._level]
        self._compute = drift * clock * (phone.burst_compute if self._burst else 1.0)
        self._memory = drift * (phone.burst_memory if self._burst else 1.0)
        if self._little:
            self._compute *= phone.little_compute
            self._memory *= phone.little_memory
        self._next_at = min(self._tick_at, self._preempt_at, self._burst_at, self._move_at)


class SimulatedModel:
    """A loaded file on a simulated phone."""

    def __init__(self, machine: PhoneMachine, cost: Cost) -> None:
        self._machine = machine
        self._cost = cost
        self._fresh = True

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (1,)

    def feed(self, values: npt.NDArray[np.float32]) -> None:
        pass

    def run(self) -> int:
        cost = self._cost
        if self._fresh:
            self._fresh, first = False, self._machine.phone.first_run
            cost = Cost(cost.compute_s * first, cost.memory_s * first)
        return max(int(self._machine.execute(cost, self) * 1e9), 1)

    def output(self) -> npt.NDArray[np.float32]:
        return np.zeros(1, np.float32)

    def operations(self, runs: int) -> list[Operation]:
        total = sum(self.run() for _ in range(runs))
        return [("all", total / runs, runs)]


class PhoneTransport:
    """The way to a simulated phone. Its one program is the runner, whatever the command is called."""

    def __init__(self, machine: PhoneMachine | None = None) -> None:
        self.machine = machine or PhoneMachine()
        self.started = 0
        self.identity = f"simulated {id(self.machine)}"

    def run(
        self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> CommandResult:
        return CommandResult(127, "", f"{argv[0]}: the simulated phone has no such program")

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> PhoneProcess:
        self.started += 1
        return PhoneProcess(self.machine, read_arguments(argv[1:])[1])

    def push(self, source: Path) -> str:
        if not source.is_file():
            raise WorkspaceError(f"cannot read {source}")
        return str(source.resolve())

    def push_all(self, sources: Sequence[Path]) -> str:
        (folder,) = {str(Path(self.push(source)).parent) for source in sources}
        return folder

    def pull(self, source: str, target: Path, *, most_bytes: int = MOST_PULL_BYTES) -> None:
        raise DeviceError(f"the simulated phone has no file {source}")

    def temporary(self, name: str) -> str:
        return f"/simulated/{name}"

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PhoneProcess:
    """The runner on a simulated phone; it runs only as far as its lines are read, so that it can be killed anywhere."""

    def __init__(self, machine: PhoneMachine, options: Options) -> None:
        machine.start(options.cpus)
        self._answers = RunnerSession(options, machine).answers()
        self._status: int | None = None

    def read_line(self, timeout_s: float) -> str | None:
        answer = next(self._answers, None) if self._status is None else None
        if answer is None:
            self._status = self._status or 0
            return None
        return encode(answer)

    def kill(self) -> None:
        self._answers.close()
        self._status = -9 if self._status is None else self._status

    def wait(self, timeout_s: float) -> CommandResult:
        if self._status is None:
            raise TimeoutError("the process has not ended")
        return CommandResult(self._status)


def write_simulated(path: Path, cost: Cost) -> Path:
    """A file for the simulated phone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"compute_s": cost.compute_s, "memory_s": cost.memory_s}))
    return path


@dataclass
class PhoneBuilder:
    """Builds files for the simulated phone; see ``campaign.Build``.

    Args:
        folder: Where the files go.
        law: The true cost of a workload.
    """

    folder: Path
    law: Callable[[Workload], Cost] = field(default=work_cost)

    def __call__(self, workloads: Sequence[Workload], /) -> Iterator[Artifact]:
        for workload in workloads:
            path = self.folder / f"{workload.sha256}.simulated"
            if not path.exists():
                with contextlib.suppress(FileExistsError):
                    write_simulated(path, self.law(workload))
            digest = hashlib.sha256(workload.key.encode()).hexdigest()
            yield Artifact(path, digest, workload, "simulated", "1", DelegationReport(1))
