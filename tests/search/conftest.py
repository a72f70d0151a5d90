"""A profiled device with a known latency law, and a campaign on it: everything a search needs but hardware."""

import functools
import importlib.metadata
from pathlib import Path

import pytest

from hwbench.latency import (
    AdditivePredictor,
    LatencyRow,
    LatencyTable,
    Role,
    calibration_networks,
    context_chains,
    macs,
    table_path,
)
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.search.latencies import choices_digest, feasible_set
from hwbench.search.settings import Settings
from hwbench.search.study import Search
from hwbench.spaces import StagedSpace, load_space
from hwbench.specs import LatencyStats, Outcome, Precision, Target, Timing, Workload
from hwbench.testing.fakes import FakeDevice
from hwbench.workspace import Workspace

TARGET = Target("local", "executorch", importlib.metadata.version("executorch"), 1)
INT8 = Precision.INT8


def law(workload: Workload) -> float:
    """Start-up, conversion of input and output, and work."""
    return 2e-5 + 4e-10 * (workload.input.numel + workload.output.numel) + macs(workload) / 20e9


@functools.cache
def table_of(space: StagedSpace) -> LatencyTable:
    parts = list(space.parts(INT8, num_classes=8))
    networks = [n.workload(INT8) for n in calibration_networks(space, 10, 0, 8)]
    rows = []
    for role, workloads in zip(Role, (parts, context_chains(parts), networks)):
        for workload in workloads:
            t = law(workload)
            stats = LatencyStats(t, 0.99 * t, 1.01 * t, 0.995 * t, 1.005 * t, 3, 30)
            rows.append(LatencyRow(role, workload, Outcome.OK, stats, "2026-01-31", "c0ffee"))
    return LatencyTable(TARGET, INT8, rows)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace.create(tmp_path / "work")
    table_of(load_space(workspace, "x3d-tiny")).write(table_path(workspace.root, TARGET, INT8))
    return workspace


@pytest.fixture
def space(workspace) -> StagedSpace:
    return load_space(workspace, "x3d-tiny")


@pytest.fixture
def predictor(space) -> AdditivePredictor:
    return AdditivePredictor.fit(table_of(space), space=space.name)


@pytest.fixture
def device(tmp_path) -> FakeDevice:
    return FakeDevice(tmp_path / "device", law=law)


@pytest.fixture
def make_search(workspace, space, predictor, device):
    """Makes a Search; its networks are measured by a real campaign on the fake device."""

    def measure(workloads):
        timing = Timing(min_rounds=3, max_rounds=4)
        with MeasurementStore(workspace.store) as store:
            campaign = Campaign(store, TARGET, {"device": "fake"}, device.build, device.measure, timing)
            return campaign.run(workloads).measurements

    def make(name: str = "mine", budget_s: float = 4.2e-3, **changes) -> Search:
        feasible = feasible_set(space, predictor, INT8, 8, budget_s)
        settings = {"evaluator": "entropy", "sampler": "tpe", "seed": 0} | changes
        return Search(
            workspace=workspace,
            name=name,
            settings=Settings(space.name, choices_digest(space), TARGET.key, "int8", 1e3 * budget_s, 8, **settings),
            feasible=feasible,
            spread=predictor.calibration.spread,
            measure=measure,
        )

    return make
