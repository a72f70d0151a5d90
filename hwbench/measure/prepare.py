"""Getting a device ready before anything is measured on it: its runner, and the proof that it computes as here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwbench.devices import Device, Probe, Transport
from hwbench.devices.arithmetic import lacking
from hwbench.errors import CheckFailed, ParityFailed
from hwbench.measure.artifact_check import check_artifact
from hwbench.measure.bench import Bench
from hwbench.measure.builder import BuildFailure, build_all
from hwbench.measure.device_runner import RUNTIME, Installed, install_runner
from hwbench.runtimes import get
from hwbench.runtimes.runners import FloatArray, Runner, check_file, choose_runner
from hwbench.specs import Artifact, Precision, Workload

# A block with a convolution over time, a depthwise and two plain ones, which builds in a second or two.
_TINY = "x3d_i8_m16_o8_k3x3x3_relu@1x8x4x8x8"
PROBES = tuple(Workload.parse(f"{_TINY}/{precision.value}/auto") for precision in get(RUNTIME).capabilities.precisions)
# Engines add in another order on other processors.
MAX_ERROR = 1e-4
# In fp16, as a share of the largest output: where sums are rounded after each step differs by processor.
MAX_HALF_ERROR = 1e-2


@dataclass(frozen=True)
class DeviceParity:
    """The output of one small file on a device against that on this machine.

    ``allowed`` is 1e-4 in fp32, 1 % of the largest value in fp16, and in int8 the distance between two neighbouring
    values of the output.
    """

    precision: Precision
    max_abs_error: float
    allowed: float

    @property
    def agrees(self) -> bool:
        """Within what is allowed."""
        return self.max_abs_error <= self.allowed


@dataclass(frozen=True)
class Prepared:
    """What was made and carried to a device, and that it computes there what it computes here."""

    installed: Installed
    parities: tuple[DeviceParity, ...]


def prepare_device(
    device: Device,
    transport: Transport,
    probe: Probe,
    *,
    cache_dir: Path,
    report: Callable[[str], None] | None = None,
) -> Prepared:
    """Installs the runner of a device and runs a small file of each precision on it; fp16 where it has the arithmetic.

    Args:
        device: Its file may say which runner.
        transport: Open, to that device.
        probe: Of that device.
        cache_dir: Where what was made or fetched is kept.
        report: Told what takes long.

    Raises:
        DeviceError: No runner works there; says what to install, and on which side.
        InvalidFile: A small file does not load there.
        CheckFailed: It does not build here, or does not run there.
        ParityFailed: The device computes something else than this machine.
        WorkspaceError: The cache cannot be written.
    """
    installed = install_runner(device, transport, probe, RUNTIME, cache_dir=cache_dir, report=report)
    bench = Bench(transport, installed.runner, 1, device.pinned(1, probe), report=report, again=installed.again)
    here = choose_runner(RUNTIME, cache_dir, report)
    probes = [one for one in PROBES if one.precision is not Precision.FP16 or not lacking(probe)]
    parities = tuple(_compared(artifact, bench, here) for artifact in _artifacts(probes, cache_dir))
    wrong = [parity for parity in parities if not parity.agrees]
    if wrong:
        found = ", ".join(f"{p.precision.value} by {p.max_abs_error:.3g} (allowed: {p.allowed:.3g})" for p in wrong)
        raise ParityFailed(
            f"the {installed.runner.kind} runner on device {device.name!r} computes something else than this machine: "
            f'{found}; try another one in its device.toml: runner = "python"'
        )
    return Prepared(installed, parities)


def _artifacts(probes: Sequence[Workload], cache_dir: Path) -> list[Artifact]:
    built = list(build_all(probes, RUNTIME, cache_dir, processes=1))
    artifacts = [found for found in built if not isinstance(found, BuildFailure)]
    for failure in (found for found in built if isinstance(found, BuildFailure)):
        raise CheckFailed(f"{failure.workload.key} does not build here: {failure.reason}; see: hwbench doctor")
    return sorted(artifacts, key=lambda artifact: artifact.workload.key)


def _compared(artifact: Artifact, bench: Bench, runner: Runner) -> DeviceParity:
    here = check_file(artifact.path, runner=runner).output
    there = check_artifact(artifact.path, bench=bench).output
    precision = artifact.workload.precision
    allowed = _allowed(precision, here)
    error = float(np.abs(there - here).max()) if there.shape == here.shape else float("inf")
    return DeviceParity(precision, error if np.isfinite(error) else float("inf"), allowed)


def _allowed(precision: Precision, output: FloatArray) -> float:
    if precision is Precision.INT8:
        return quantisation_step(output)
    return MAX_HALF_ERROR * float(np.abs(output).max()) if precision is Precision.FP16 else MAX_ERROR


def quantisation_step(values: FloatArray) -> float:
    """The distance between two neighbours among values that were dequantised with one scale; 0 if all are equal.

    A hundredth more, since a product in float32 is not exact.
    """
    levels = np.unique(values.astype(np.float64))
    gaps = np.diff(levels)
    return 1.01 * float(gaps[gaps > 1e-5 * np.abs(levels).max()].min(initial=np.inf)) if len(levels) > 1 else 0.0
