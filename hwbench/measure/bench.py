"""Where and with what is measured: a device that is reached, with a runner that is ready on it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hwbench.devices import (
    CommandResult,
    Conditions,
    Control,
    Device,
    Probe,
    Process,
    Transport,
    controlled,
    occupied,
)
from hwbench.devices.arithmetic import emulates_half, require_arithmetic
from hwbench.devices.preflight import turbo_switched
from hwbench.devices.quota import require_quota
from hwbench.errors import DeviceBusy, DeviceError, DeviceLost, DeviceUnreachable
from hwbench.measure.carried import check_runtime
from hwbench.measure.device_runner import Installed, install_runner
from hwbench.measure.drift import Undisturbed
from hwbench.measure.executor_runner import Upstream
from hwbench.runtimes import protocol
from hwbench.runtimes.capabilities import EXECUTOR_RUNNER
from hwbench.runtimes.runners import Runner
from hwbench.specs import Precision, Timing


@dataclass(frozen=True)
class Bench:
    """Where and with what is measured: an open transport, a runner, and the processors that it is bound to.

    ``conditions`` must be equal for two rows to be comparable: the device's fingerprint, processors, runner and so on.
    ``report`` is told in words when the device went away and came back. ``control`` is what of
    the device is held still.
    ``again`` brings the runner there once more, and holds again what was held, where the device was started anew.
    ``probe`` asks the runner to tell the clock and other users of the core; runners in Python do not.
    ``sent`` are the files here by their paths on the device: what is known of a file is read from this one, never from
    what the device sends back.
    """

    transport: Transport
    runner: Runner
    threads: int = 1
    cpus: tuple[int, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    report: Callable[[str], None] | None = None
    control: Control = field(default_factory=Control)
    again: Callable[[], object] = lambda: None
    probe: bool = False
    sent: dict[str, Path] = field(default_factory=dict, compare=False, repr=False)

    def push(self, source: Path) -> str:
        """Brings a file to the device and remembers which it is; errors as ``Transport.push``."""
        there = self.transport.push(source)
        self.sent[there] = source
        return there

    def options(self, timing: Timing, undisturbed: Undisturbed | None = None, **rest: object) -> protocol.Options:
        """Arguments of the runner under a protocol, which is told what core and memory are like undisturbed."""
        known = undisturbed or Undisturbed()
        values: dict[str, object] = {
            "threads": self.threads,
            "cpus": self.cpus,
            "warm_ms": timing.warmup_s * 1e3,
            "min_samples": timing.min_samples,
            "min_ms": timing.min_session_s * 1e3,
            "max_ms": timing.max_session_s * 1e3,
            "timeout_s": max(1, math.ceil(timing.timeout_s)),
            "cache": str(timing.cache),
            "probe": self.probe,
            "quiet_ppm": round(1e6 * known.crowding.known),
            "memory_ppm": round(1e6 * known.memory.known),
            **rest,
        }
        return protocol.Options(**values)  # type: ignore[arg-type]

    def command(self, options: protocol.Options) -> list[str]:
        """The command line of the runner on the device."""
        return [*self.runner.command, *options.argv()]

    def run(self, options: protocol.Options, timeout_s: float) -> CommandResult:
        """Runs the runner to its end; errors as ``Transport.run``."""
        if self.runner.kind == EXECUTOR_RUNNER:
            return Upstream(self.transport, self.runner, self.sent).run(options, timeout_s)
        return self.transport.run(self.command(options), timeout_s=timeout_s, env=self.runner.env)

    def spawn(self, options: protocol.Options) -> Process:
        """Starts the runner, whose lines are to be read; errors as ``Transport.spawn``."""
        if self.runner.kind == EXECUTOR_RUNNER:
            return Upstream(self.transport, self.runner, self.sent).spawn(options)
        return self.transport.spawn(self.command(options), env=self.runner.env)


@contextmanager
def open_bench(
    device: Device,
    runtime: str,
    *,
    cache_dir: Path,
    threads: int | None = None,
    conditions: Conditions | None = None,
    precisions: Collection[Precision] = (),
    report: Callable[[str], None] | None = None,
) -> Iterator[Bench]:
    """``open_benches`` for one runtime; arguments and errors as there."""
    with open_benches(
        device,
        (runtime,),
        cache_dir=cache_dir,
        threads=threads,
        conditions=conditions,
        precisions=precisions,
        report=report,
    ) as benches:
        yield benches[runtime]


@contextmanager
def open_benches(
    device: Device,
    runtimes: Sequence[str],
    *,
    cache_dir: Path,
    threads: int | None = None,
    conditions: Conditions | None = None,
    precisions: Collection[Precision] = (),
    report: Callable[[str], None] | None = None,
    unfit: dict[str, DeviceError] | None = None,
) -> Iterator[dict[str, Bench]]:
    """Reaches a device, asks it what it is, and gets a runner for each runtime ready; builds one that never was.

    Args:
        device: What to reach.
        runtimes: Names of the runtimes whose files are to be run.
        cache_dir: Where built runners are kept.
        threads: Threads of the engine; default: as the device file says.
        conditions: Whether the device is left as it is or its knobs are held; default: as the device file says.
        precisions: Of the files that are to be run, as far as they are known.
        report: Told in words when a runner is built, why the Python runner is taken where it is, what of the device
            could not be held or put back, and that its turbo was switched since it was added.
        unfit: Takes the runtimes of which no runner works there, with why, as long as one of another does; default: an
            error.

    Raises:
        DeviceUnreachable: The device does not answer.
        DeviceBusy: Another process measures on it.
        DeviceError: Another device answers under this name, the device was updated, or no runner works there.
        InvalidValue: It or the container of this process has fewer cores than threads, it runs no such files, or does
            not compute in a precision.
        WorkspaceError: The cache cannot be written.
    """
    for runtime in runtimes:
        check_runtime(device, runtime)
    threads = threads or device.threads
    with device.transport(report) as transport, occupied(transport, report) as probe:
        cpus = processors_for(device, probe, threads, precisions)
        wanted = conditions or device.conditions
        if report is not None and wanted is Conditions.STOCK and (switched := turbo_switched(device, probe)):
            report(str(switched))
        if report is not None and Precision.FP16 in precisions and emulates_half(probe):
            report("fp16: this processor computes it in fp32 and rounds each result; phones since 2018 do better")
        installed = dict[str, Installed]()
        for runtime in runtimes:
            try:
                installed[runtime] = install_runner(
                    device, transport, probe, runtime, cache_dir=cache_dir, report=report
                )
            except (DeviceLost, DeviceUnreachable, DeviceBusy):
                raise
            except DeviceError as error:
                if unfit is None:
                    raise
                unfit[runtime] = error
        if unfit and not installed:
            raise next(iter(unfit.values()))
        with controlled(wanted, probe, transport, report) as control:
            benches = {}
            for runtime, one in installed.items():
                known = control.row(probe, cpus, one.runner.label)
                if one.runner.libraries:
                    known["libraries"] = one.runner.libraries[:16]
                probed = not device.emulated
                again = functools.partial(_again, one.again, control)
                benches[runtime] = Bench(
                    transport, one.runner, threads, cpus, known, report, control, again, probe=probed
                )
            yield benches


def processors_for(device: Device, probe: Probe, threads: int, precisions: Collection[Precision]) -> tuple[int, ...]:
    """The processors that a run on a device is bound to, one for each thread.

    Raises:
        DeviceError: Another device answers under this name, or the device was updated.
        InvalidValue: It or the container of this process has fewer cores than threads, or it does not compute in a
            precision.
    """
    device.recognise(probe)
    require_quota(device, threads)
    require_arithmetic(probe, device.name, precisions)
    return device.pinned(threads, probe)


def _again(runner: Callable[[], object], control: Control) -> None:
    runner()
    control.again()
