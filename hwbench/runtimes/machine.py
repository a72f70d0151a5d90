"""The machine under the Python runner; ``hwbench.testing.simulated_phone`` puts another one there, in virtual time."""

from __future__ import annotations

import gc
import os
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hwbench.runtimes.protocol import LEAST_CACHE_BYTES, UNKNOWN_CACHE_BYTES, Options
from hwbench.runtimes.python_models import Model, load_engine, load_file

# Names of thermal zones of processors: x86, Qualcomm and MediaTek, Samsung and Google, Rockchip.
PROCESSOR_ZONES = ("cpu", "pkg", "big", "mid", "little", "core", "soc")
# Qualcomm's zones of the state of charge, in percent: "soc" of kernels 4.x, and "socd", which is 100 minus it.
CHARGE_ZONES = ("soc", "socd")


class Usage(NamedTuple):
    """What the process has used since it started."""

    cpu_ns: int
    nivcsw: int
    majflt: int


class Machine:
    """This machine: its clocks, its processors, and the engines that run files."""

    _junk: npt.NDArray[np.uint8] | None = None

    def load_engine(self, path: str, threads: int) -> None:
        """Gets ready what runs a file of this kind; no part of the time that loading a file takes."""
        load_engine(path, threads)

    def load(self, path: str, options: Options) -> Model:
        """A file without its input, which is no part of the time that loading takes.

        Raises:
            ModelFailure: It does not load.
        """
        return load_file(path, options)

    def now_ns(self) -> int:
        """CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def usage(self) -> Usage:
        """CPU time, involuntary switches and major faults of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Usage(time.process_time_ns(), used.ru_nivcsw, used.ru_majflt)

    def peak_memory_kb(self) -> int:
        """Most memory that this process has had."""
        # ru_maxrss outlives exec on Linux: it has what the parent had.
        peak_kb = status_kb(_read("/proc/self/status"), "VmHWM")
        return peak_kb or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def cpus(self) -> list[int]:
        """The processors that this process is bound to."""
        return sorted(os.sched_getaffinity(0))

    def clock_khz(self) -> int:
        """Clock of the first processor we are bound to; 0: unknown."""
        return _number(_read(f"/sys/devices/system/cpu/cpu{self.cpus()[0]}/cpufreq/scaling_cur_freq"))

    def temperature_mc(self) -> int:
        """Hottest thermal zone of the processors (of any kind where none is called so), in millidegrees; 0: unknown."""
        folders = Path("/sys/class/thermal").glob("thermal_zone*")
        return hottest([(_read(f"{folder}/type").lower(), _read(f"{folder}/temp")) for folder in folders])

    def last_cache_bytes(self) -> int:
        """Size of the largest cache of the first processor we are bound to."""
        sizes = Path(f"/sys/devices/system/cpu/cpu{self.cpus()[0]}/cache").glob("index*/size")
        known = max((1024 * _number(_read(str(size)).removesuffix("K")) for size in sizes), default=0)
        return max(known, LEAST_CACHE_BYTES) if known else UNKNOWN_CACHE_BYTES

    def flush(self) -> None:
        """Writes over twice the last cache."""
        if self._junk is None:
            self._junk = np.zeros(2 * self.last_cache_bytes(), np.uint8)
        self._junk += 1

    def limit(self, seconds: int) -> None:
        """Ends the process by SIGALRM after so many seconds; 0 takes that back."""
        signal.alarm(seconds)

    @contextmanager
    def collecting_before(self) -> Iterator[None]:
        """Collects garbage before a visit and not within it."""
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def status_kb(status: str, name: str) -> int:
    """A number of kB out of the text of ``/proc/self/status``; 0: it is not there."""
    lines = (line.split() for line in status.splitlines())
    return next((_number(words[1]) for words in lines if len(words) > 1 and words[0] == f"{name}:"), 0)


def hottest(zones: Sequence[tuple[str, str]]) -> int:
    """Of (kind, reading): the hottest of the processors, else of all, in millidegrees; 0: unknown."""
    zones = [(kind, reading) for kind, reading in zones if kind not in CHARGE_ZONES or _number(reading) > 100]
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


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _number(text: str) -> int:
    # The lengths of numbers of 64 bits: Python refuses to read ones of thousands of digits.
    return int(text) if text.isdecimal() and len(text) < 20 else 0
