from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import hwbench.data.builtin
from hwbench.api.export_sources import source_of
from hwbench.data import SyntheticSpec
from hwbench.deploy import DeployedModel, ExportSource, export, open_calibration, open_validation
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec
from hwbench.training import Recipe, open_data, train
from hwbench.workspace import Workspace

SPEC = SyntheticSpec(train_per_class=3, val_per_class=2, size=24, frames=8)
KEYS = ("stem_i3_o8_k1x3x3+5x1x1_s2_relu", "x3d_i8_m16_o8_k3x3x3_s2_swish", "head_i8_m16_d32_o8_kglobal_relu")
NETWORK = Network("x3d-tiny:test", tuple(BlockSpec.parse(key) for key in KEYS), TensorSpec(1, 3, 4, 16, 16))
# Bounds of the tests are about the network that this makes.
RECIPE = Recipe(epochs=4, batch_size=4, learning_rate=0.05, seed=3, dropout=0.2)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory, runner_cache: Path) -> Iterator[Workspace]:
    """A workspace whose synthetic set is small, with the runner that was made already."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hwbench.data.builtin, "SyntheticSpec", lambda: SPEC)
        made = Workspace.create(tmp_path_factory.mktemp("deploy") / "workspace")
        made.cache.symlink_to(runner_cache)
        yield made


@pytest.fixture(scope="session")
def checkpoint(workspace: Workspace) -> Path:
    """A small network, trained for a moment on the small set."""
    data = open_data(workspace, "synthetic", (4, 16, 16), RECIPE)
    return train(RECIPE, NETWORK, data, workspace.root / "run").checkpoint.path


@pytest.fixture(scope="session")
def original(checkpoint: Path) -> ExportSource:
    """That network, to export."""
    return source_of(checkpoint)


@pytest.fixture(scope="session")
def fp32(workspace: Workspace, original: ExportSource) -> DeployedModel:
    """Its export in fp32."""
    validation = open_validation(workspace, "synthetic", original)
    return export(original, workspace.root / "fp32", precision=Precision.FP32, validation=validation)


@pytest.fixture(scope="session")
def int8(workspace: Workspace, original: ExportSource) -> DeployedModel:
    """Its export in int8. Two views per video, to see that they are averaged."""
    original = replace(original, views=(2, 1))
    return export(
        original,
        workspace.root / "int8",
        precision=Precision.INT8,
        calibration=open_calibration(workspace, "synthetic", original, count=6, seed=5),
        validation=open_validation(workspace, "synthetic", original),
    )
