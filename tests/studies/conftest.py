"""A profiled device with a known latency law, and a campaign on it: everything a search needs but hardware."""

import functools
from pathlib import Path

import pytest

from hwbench.latency import (
    AdditivePredictor,
    LatencyTable,
    table_path,
)
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.spaces import StagedSpace, load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.specs import Precision, Timing
from hwbench.studies.evaluators.base import Context, evaluators
from hwbench.studies.latencies import choices_digest, feasible_set
from hwbench.studies.settings import Settings
from hwbench.studies.study import Search
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import installed_target, space_table, work
from hwbench.workspace import Workspace

TARGET = installed_target()
INT8 = Precision.INT8


@functools.cache
def table_of(space: StagedSpace) -> LatencyTable:
    return space_table(space, INT8)


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
    return FakeDevice(tmp_path / "device", law=work)


@pytest.fixture
def make_search(workspace, space, predictor, device):
    """Makes a Search; its networks are measured by a real campaign on the fake device."""

    def measure(workloads):
        timing = Timing(min_rounds=3, max_rounds=4)
        with MeasurementStore(workspace.store) as store:
            campaign = Campaign(store, TARGET, {"device": "fake"}, device.build, device.measure, timing)
            return campaign.run(workloads).measurements

    def make(name: str = "mine", budget_s: float = 4.2e-3, smaller_s: tuple[float, ...] = (), **changes) -> Search:
        changes = {"evaluator": "entropy", "sampler": "tpe", "seed": 0} | changes
        changes["smaller_budgets_ms"] = tuple(1e3 * limit for limit in smaller_s)
        settings = Settings(space.name, choices_digest(space), TARGET.key, "int8", 1e3 * budget_s, 8, **changes)
        return Search(
            workspace=workspace,
            name=name,
            settings=settings,
            feasible=(feasible := feasible_set(space, predictor, settings)),
            smaller=[FeasibleSet(feasible.sums, limit_ms / 1e3) for limit_ms in settings.smaller_budgets_ms],
            spread=predictor.calibration.spread,
            measure=measure,
        )

    return make


@evaluators.register("deep-and-slow")
class DeepAndSlow:
    """More blocks and wider ones are better: no closed form of the space knows it, and slower networks win."""

    name = "deep-and-slow"
    unit = "blocks"

    def __init__(self, context: Context) -> None:
        pass

    def score(self, network) -> float:
        return len(network.blocks) + 1e-3 * sum(block.out_channels or 0 for block in network.blocks)
