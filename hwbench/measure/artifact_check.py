"""One file on a device, without timing its sessions: does it run, and what do its operations take."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hwbench.errors import CheckFailed, InvalidFile
from hwbench.measure.bench import Bench
from hwbench.runtimes import protocol
from hwbench.runtimes.runners import STARTUP_S, CheckResult, FloatArray, describe_end, read_check
from hwbench.scratch import scratch_folder
from hwbench.specs import Timing


def check_artifact(
    path: Path, input: FloatArray | None = None, *, bench: Bench, timeout_s: float = 120.0
) -> CheckResult:
    """Loads a file on the device and runs it once in a process of its own.

    Args:
        path: The file.
        input: Values of its one input in the order of its axes; default: the seeded values that timing uses.
        bench: Where and with what.
        timeout_s: Limit for loading and running; starting the runner is not counted.

    Raises:
        InvalidFile: It does not load.
        CheckFailed: It loads, but does not run, kills its process, or takes too long.
        WorkspaceError: Its output cannot be written.
        DeviceError: The device went away.
    """
    transport = bench.transport
    with scratch_folder() as folder:
        output, given = transport.temporary("output.raw"), ""
        if input is not None:
            raw = Path(folder, "input.raw")
            raw.write_bytes(input.astype("<f4", order="C").tobytes())
            given = bench.push(raw)
        options = protocol.Options(
            check=bench.push(path),
            input=given,
            output=output,
            threads=bench.threads,
            cpus=bench.cpus,
            timeout_s=max(1, round(timeout_s)),
        )
        result = bench.run(options, timeout_s + STARTUP_S)
        if result.timed_out:
            raise CheckFailed(f"{path}: no result after {timeout_s:.0f} s")
        answer = Path(folder, "output.raw")
        if result.ok:
            transport.pull(output, answer)
        return read_check(str(path), result.status, result.stdout, result.stderr, answer)


@dataclass(frozen=True)
class OperationTime:
    """Mean time of one operation of one execution; ``count`` executions were averaged."""

    name: str
    seconds: float
    count: int


@dataclass(frozen=True)
class OperationProfile:
    """Times by operation, in the order of execution.

    The tracer adds time to each operation and XNNPACK reports whole microseconds, rounded down, so these are shares of
    a latency and no latency: ``total_s`` is that of the traced execution. Operations of XNNPACK have names such as
    ``Convolution (NHWC, F32) DWConv #1``.
    """

    total_s: float
    operations: tuple[OperationTime, ...]

    @property
    def unaccounted_s(self) -> float:
        """What no operation accounts for: tracing, calls between the operations, and fractions of microseconds."""
        return max(0.0, self.total_s - sum(operation.seconds for operation in self.operations))


def profile_ops(path: Path, *, bench: Bench, timing: Timing | None = None) -> OperationProfile:
    """Times each operation of a file, in a pass of its own.

    Raises:
        InvalidFile: It does not load.
        CheckFailed: It loads, but does not run, or the runner gave no answer.
        DeviceError: The device went away.
    """
    timing = timing or Timing()
    with scratch_folder() as folder:
        listing = Path(folder, "list.tsv")
        listing.write_bytes(os.fsencode(f"0\t{bench.push(path)}\n"))
        options = bench.options(timing, list=bench.push(listing), profile=True)
        result = bench.run(options, timing.timeout_s + STARTUP_S)
    try:
        messages = [protocol.parse_line(line) for line in result.stdout.splitlines()]
    except protocol.MalformedLine as error:
        raise CheckFailed(f"{path}: the runner answered something else than expected: {error}") from error
    for message in messages:
        if isinstance(message, protocol.Error):
            kind = InvalidFile if message.stage == "load" else CheckFailed
            raise kind(f"{path}: {message.reason}")
        if isinstance(message, protocol.Operations):
            found = tuple(OperationTime(name, ns * 1e-9, count) for name, ns, count in protocol.leaves(message.ops))
            return OperationProfile(message.total_ns * 1e-9, found)
    ended = "no answer in time" if result.timed_out else describe_end(result.status, result.stderr)
    raise CheckFailed(f"{path}: no profile: {ended}")
