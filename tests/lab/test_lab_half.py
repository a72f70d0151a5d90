"""fp16 on emulated boards: one whose processors compute in half precision, and one whose processors do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lab.clients import command, ended

from hwbench.data import default_clip
from hwbench.deploy import export, randomly_weighted
from hwbench.runtimes.capabilities import NATIVE_LOADER
from hwbench.runtimes.runners import check_file
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec
from hwbench.testing import arm, lab
from hwbench.workspace import Workspace

KEYS = ("stem_i3_o8_k1x3x3+5x1x1_s2_relu", "x3d_i8_m16_o8_k3x3x3_s2_se8_hswish", "head_i8_m16_d32_o3_kglobal_relu")
NETWORK = Network("small", tuple(map(BlockSpec.parse, KEYS)), TensorSpec(1, 3, 4, 32, 32))
NEW, OLD = "pi5", "pi3"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workspace(
    laboratory: None, board: lab.VirtualBoard, runner_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workspace]:
    """One with a board of each kind."""
    made = Workspace.create(tmp_path_factory.mktemp("half") / "bench")
    made.cache.symlink_to(runner_cache)
    board.write_device_file(made.root, NEW)
    with lab.ssh_board(processor=lab.CORTEX_A53) as old:
        old.write_device_file(made.root, OLD)
        yield made


@pytest.fixture(scope="module")
def files(workspace: Workspace) -> dict[Precision, Path]:
    """One network, in half and in single precision."""
    torch.set_num_threads(1)
    original = randomly_weighted(NETWORK, default_clip("synthetic", NETWORK.input.t))
    precisions = (Precision.FP16, Precision.FP32)
    return {one: export(original, workspace.root / one.value, precision=one).path for one in precisions}


def run(workspace: Workspace, *words: str) -> tuple[int, dict[str, Any], str]:
    """A command as a user types it, to its end."""
    return ended(command(workspace, *words, "--json"))


@pytest.mark.long
def test_a_file_in_half_precision_computes_the_same_there_and_is_timed(
    workspace: Workspace, files: dict[Precision, Path]
) -> None:
    half = str(files[Precision.FP16])
    status, found, said = run(workspace, "verify", half, "--device", NEW, "--inputs", "1")
    assert status == 0, said
    assert found["agrees"] is True
    status, found, said = run(workspace, "bench", half, "--device", NEW, "--samples", "1", "--seconds", "0")
    assert status == 0, said
    assert found["emulated"] is True


@pytest.mark.long
def test_blocks_in_half_precision_are_profiled_there(workspace: Workspace) -> None:
    words = ("profile", "--space", "x3d-tiny", "--limit", "2", "--calibrate", "0", "--precision", "fp16")
    status, found, said = run(workspace, *words, "--device", NEW)
    assert status == 0, said
    assert (found["ok"], found["failed"]) == (2, 0)


@pytest.mark.parametrize("command", [pytest.param("profile", marks=pytest.mark.long), "bench"])
def test_a_board_without_the_arithmetic_is_refused_in_a_line(
    workspace: Workspace, files: dict[Precision, Path], command: str
) -> None:
    words = {
        "profile": ("profile", "--space", "x3d-tiny", "--precision", "fp16"),
        "bench": ("bench", str(files[Precision.FP16])),
    }[command]
    status, _, said = run(workspace, *words, "--device", OLD)
    assert status == 2, said
    (line,) = [line for line in said.splitlines() if "fp16 arithmetic" in line]
    assert f"device {OLD!r} has no fp16 arithmetic (Cortex-A53 without asimdhp)" in line
    assert "--precision int8 or fp32" in line


@pytest.mark.long
def test_that_board_times_the_network_in_single_precision(workspace: Workspace, files: dict[Precision, Path]) -> None:
    words = ("bench", str(files[Precision.FP32]), "--device", OLD, "--samples", "1", "--seconds", "0")
    status, found, said = run(workspace, *words)
    assert status == 0, said
    assert found["median_ms"] > 0


def test_the_engine_would_compute_in_single_precision_there(
    files: dict[Precision, Path], runner_cache: Path, tmp_path: Path
) -> None:
    """What the refusal says: only the weights are rounded, so that half precision would cost what single does."""
    runner = arm.unpacked(arm.kits(runner_cache)[NATIVE_LOADER], tmp_path / "runner")
    older = tuple("cortex-a53" if word == "cortex-a76" else word for word in runner.command)
    exact = check_file(files[Precision.FP32], runner=runner).output
    new, old = (
        np.abs(check_file(files[Precision.FP16], runner=replace(runner, command=command)).output - exact).max()
        for command in (runner.command, older)
    )
    assert 0 < old < new / 2
