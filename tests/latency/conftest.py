"""A device whose latencies are known exactly: blocks add up, and every run pays for its outer boundaries."""

from collections.abc import Iterable

import pytest

from hwbench.latency import LatencyRow, LatencyTable, Role, macs
from hwbench.specs import LatencyStats, Outcome, Precision, Target, TensorSpec, Workload

TARGET = Target("local", "executorch", "1.5.1", 1)


def stats(seconds: float) -> LatencyStats:
    return LatencyStats(seconds, 0.99 * seconds, 1.02 * seconds, 0.995 * seconds, 1.005 * seconds, 3, 30)


class Device:
    """Latency = start-up + conversion of input and output + work, times a factor that single blocks do not show."""

    start_s = 2e-5

    def __init__(self, in_networks: float = 1.0) -> None:
        self.in_networks = in_networks

    def convert(self, x: TensorSpec) -> float:
        return 3e-6 + 4e-10 * x.numel

    def seconds(self, workload: Workload) -> float:
        work = macs(workload) / 20e9
        factor = self.in_networks if len(workload.blocks) > 5 else 1.0
        return self.start_s + self.convert(workload.input) + self.convert(workload.output) + work * factor

    def row(self, workload: Workload, role: Role) -> LatencyRow:
        return LatencyRow(role, workload, Outcome.OK, stats(self.seconds(workload)), "2026-01-31", "c0ffee")

    def table(
        self, blocks: Iterable[Workload], chains: Iterable[Workload] = (), networks: Iterable[Workload] = ()
    ) -> LatencyTable:
        rows = [self.row(w, r) for r, ws in zip(Role, (blocks, chains, networks)) for w in ws]
        return LatencyTable(TARGET, Precision.INT8, rows)


@pytest.fixture
def target() -> Target:
    return TARGET


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def make_device() -> type[Device]:
    return Device
