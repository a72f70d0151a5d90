from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_network import NETWORK, RECIPE, SPEC

import hwbench.data.builtin
from hwbench.api.export_sources import source_of
from hwbench.deploy import DeployedModel, ExportSource, export, open_calibration, open_validation
from hwbench.specs import Precision
from hwbench.training import open_data, train
from hwbench.workspace import Workspace


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
