"""What a fault costs a campaign; all of them, at each moment, are experiment 004."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwbench.testing import lab
from hwbench.testing.faults import FAULTS, run_case
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
