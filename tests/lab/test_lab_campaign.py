"""Campaigns in the laboratory: what is built meanwhile, and what a fault costs (at each moment: experiment 004)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hwbench.devices import load_device
from hwbench.measure.campaign import Campaign, CampaignWatch
from hwbench.measure.on_device import campaign_on
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Outcome, Workload
from hwbench.testing import lab
from hwbench.testing.faults import FAULTS, TIMING, run_case
from hwbench.workspace import Workspace

BY_NAME = {fault.name: fault for fault in FAULTS}


@pytest.fixture(scope="module")
def workspace(runner_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = Workspace.create(tmp_path_factory.mktemp("faults") / "bench")
    made.cache.symlink_to(runner_cache)
    return made


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "action", "fault"),
    [
        ("board", "run", "reboot"),
        ("board", "push", "connection cut in a transfer"),
        ("phone", "run", "server killed"),
        ("phone", "push", "disk full"),
    ],
)
def test_a_fault_costs_the_session_under_way_and_no_more(
    kind: str, action: str, fault: str, request: pytest.FixtureRequest, workspace: Workspace
) -> None:
    device: lab.LabDevice = request.getfixturevalue(kind)
    if fault == "disk full" and device.machine.disk is None:
        pytest.skip("filling a lab device's disk needs the right to mount")
    case = run_case(device, BY_NAME[fault], action, workspace=workspace)
    assert case.ok, case
    assert bool(case.ended) == (fault == "disk full")
    assert case.sessions_before >= 3


@dataclass
class Patient(CampaignWatch):
    """Holds the first session up until the file of another row is there."""

    campaign: Campaign
    cache_dir: Path
    other: Workload
    waited: list[bool] = field(default_factory=list)

    def visited(self, workload: Workload) -> None:
        if not self.waited:
            deadline = time.monotonic() + 300
            while not (there := self.is_built()) and time.monotonic() < deadline:
                time.sleep(0.1)
            self.waited.append(there)

    def is_built(self) -> bool:
        return bool(list(self.cache_dir.glob(f"{self.campaign.build_key(self.other)}.json")))


@pytest.mark.long
def test_the_next_row_is_built_while_a_board_measures(board: lab.VirtualBoard, workspace: Workspace) -> None:
    board.write_device_file(workspace.root, "board")
    rows = [Workload.parse(f"x3d_i8_m16_o8_k1x3x3_relu@1x8x1x8x{width}/fp32/auto") for width in (8, 9)]
    with (
        MeasurementStore(workspace.store) as store,
        campaign_on(
            load_device(workspace, "board"), store=store, cache_dir=workspace.cache, timing=TIMING, processes=1
        ) as campaign,
    ):
        for path in workspace.cache.glob(f"{campaign.build_key(rows[1])}.*"):
            path.unlink()
        one_by_one = replace(campaign, batch=1)
        watch = Patient(one_by_one, workspace.cache, rows[1])
        result = one_by_one.run(rows, watch)
    assert watch.waited == [True]
    assert [row.outcome for row in result.measurements] == [Outcome.OK, Outcome.OK]
