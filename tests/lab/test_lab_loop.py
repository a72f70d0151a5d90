"""The commands a user types, on two lab devices at once: profile, verify and bench, with aarch64 programs."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
import torch
from lab.clients import command, ended

import hwbench.data.builtin
from hwbench.data import SyntheticSpec, default_clip
from hwbench.deploy import export, open_calibration, randomly_weighted
from hwbench.latency import LatencyTable
from hwbench.models import x3d_blocks
from hwbench.specs import BlockSpec, DelegationReport, Network, Precision, TensorSpec
from hwbench.testing import lab
from hwbench.workspace import Workspace

# Lowering takes its time over operations, whose number depends on neither frames nor size; an emulator over pixels.
INPUT = TensorSpec(1, 3, 4, 64, 64)
KEYS = ("stem_i3_o8_k1x3x3+5x1x1_s2_relu", "x3d_i8_m16_o8_k3x3x3_s2_se8_hswish", "head_i8_m16_d32_o3_kglobal_relu")
NETWORKS = {
    "small": Network("small", tuple(map(BlockSpec.parse, KEYS)), INPUT),
    "x3d-xs": Network("x3d-xs", x3d_blocks("XS"), INPUT),
}
SPEC = SyntheticSpec(train_per_class=1, val_per_class=1, size=64, frames=8)


@pytest.fixture(scope="module")
def workspace(
    board: lab.VirtualBoard, phone: lab.VirtualPhone, runner_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Workspace:
    """One with both devices, and with the runners that were made already."""
    made = Workspace.create(tmp_path_factory.mktemp("loop") / "bench")
    made.cache.symlink_to(runner_cache)
    board.write_device_file(made.root, "board")
    phone.write_device_file(made.root, "phone")
    return made


@pytest.fixture(scope="module", params=["small", "x3d-xs"])
def model(request: pytest.FixtureRequest, workspace: Workspace) -> Path:
    """A network in int8, exported."""
    torch.set_num_threads(1)
    network = NETWORKS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hwbench.data.builtin, "SyntheticSpec", lambda: SPEC)
        original = randomly_weighted(network, default_clip("synthetic", network.input.t))
        calibration = open_calibration(workspace, "synthetic", original, count=2, seed=0)
        made = export(original, workspace.root / network.name, precision=Precision.INT8, calibration=calibration)
    assert made.manifest.delegation == DelegationReport(1)
    return made.path


@pytest.mark.long
@pytest.mark.parametrize("rows", [2, 20])
def test_two_devices_are_profiled_at_once_and_a_third_process_is_refused(workspace: Workspace, rows: int) -> None:
    words = ("profile", "--space", "x3d-tiny", "--limit", str(rows), "--calibrate", "0", "--json")
    both = (*words, "--device", "board,phone", "--precision")
    profiling = command(workspace, *both, "fp32")
    leases = Path(os.environ["XDG_STATE_HOME"], "hwbench", "leases")
    deadline = time.monotonic() + 300
    while len([path for path in leases.glob("*.json") if path.stat().st_size]) < 2:
        assert profiling.poll() is None, profiling.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    refused, _, said = ended(command(workspace, *words, "--device", "board", "--precision", "fp32"))
    assert refused == 3
    assert "is in use by process" in said
    assert "profile --device board" in said
    check_tables(workspace, rows, profiling)
    if rows > 2:
        check_tables(workspace, rows, command(workspace, *both, "int8"))


def check_tables(workspace: Workspace, rows: int, profiling: subprocess.Popen[str]) -> None:
    status, found, talk = ended(profiling)
    assert status == 0, talk
    for name, result in zip(("board", "phone"), found["devices"], strict=True):
        assert (result["device"], result["ok"] + result["skipped"], result["failed"]) == (name, rows, 0)
        table = LatencyTable.read(workspace.root / result["table"])
        assert len(list(table)) == rows
        assert table.emulated


@pytest.mark.long
@pytest.mark.parametrize("device", ["phone", "board"])
def test_an_exported_network_computes_the_same_there_and_is_timed(
    workspace: Workspace, model: Path, device: str
) -> None:
    status, found, talk = ended(command(workspace, "verify", str(model), "--device", device, "--inputs", "1", "--json"))
    assert status == 0, talk
    assert found["agrees"] is True
    assert found["same_top1"] == 1.0
    # One step of an output in int8 is the range over 255.
    assert found["max_relative_error"] <= 2 / 255
    status, found, talk = ended(
        command(workspace, "bench", str(model), "--device", device, "--samples", "1", "--seconds", "0", "--json")
    )
    assert status == 0, talk
    assert found["emulated"] is True
    assert found["median_ms"] > 0
