"""19-26: the observer of int8 is the one whose parity does, chosen before anything is lowered, and told."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_network import NETWORK
from torch import nn

from hwbench import models
from hwbench.data import default_clip
from hwbench.deploy import (
    MANIFEST,
    DeployedModel,
    ExportSource,
    Int8,
    Manifest,
    export,
    open_calibration,
    open_validation,
)
from hwbench.deploy.clips import Clips, calibration_inputs
from hwbench.deploy.external import ForeignModel, foreign_original
from hwbench.deploy.int8 import DeployForm, Int8Plan
from hwbench.deploy.parity import MIN_SQNR_RANDOM_DB, sqnr_db
from hwbench.deploy.pipeline import _met_clips
from hwbench.deploy.progress import ExportProgress
from hwbench.deploy.source import randomly_weighted, with_statistics_of
from hwbench.errors import InvalidValue, ParityFailed
from hwbench.runtimes import get
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.executorch.scheme import OBSERVERS
from hwbench.specs import Precision, TensorSpec
from hwbench.workspace import Workspace

with quiet():
    from torchao.quantization.pt2e import MinMaxObserver

    from hwbench.runtimes.executorch import quantize


class Narrow(MinMaxObserver):
    """Sees all values, and leaves room for a fiftieth of their range."""

    def calculate_qparams(self) -> Any:
        scale, zero_point = super().calculate_qparams()
        return scale / 50, zero_point


@pytest.fixture(scope="module")
def random_weights() -> ExportSource:
    return randomly_weighted(NETWORK, default_clip("synthetic", NETWORK.input.t), seed=0)


@pytest.fixture(scope="module")
def calibration(workspace: Workspace, random_weights: ExportSource) -> Clips:
    return open_calibration(workspace, "synthetic", random_weights, count=6)


@pytest.fixture(scope="module")
def validation(workspace: Workspace, random_weights: ExportSource) -> Clips:
    return open_validation(workspace, "synthetic", random_weights)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes observers bad ones."""

    def spoil(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(quantize._OBSERVERS, name, Narrow)

    return spoil


def plan(original: ExportSource, calibration: Clips, validation: Clips, int8: Int8) -> Int8Plan:
    inputs = calibration_inputs(calibration, lambda done, all: None)
    deployed = models.deployed(original.module, original.network.input)
    form = DeployForm(deployed, inputs[0], inputs)
    return Int8Plan(original, form, int8, None, lambda _: None, get("executorch"), validation.some(8))


def test_19_26_the_best_observer_is_taken_where_histograms_do_not_do(
    random_weights: ExportSource,
    calibration: Clips,
    validation: Clips,
    narrow: Callable[..., None],
    tmp_path: Path,
) -> None:
    narrow("histogram")
    stages = list[str]()

    def watch(at: ExportProgress) -> None:
        stages.append(at.stage)

    deployed = export(
        random_weights,
        tmp_path,
        precision=Precision.INT8,
        calibration=calibration,
        validation=validation,
        progress=watch,
    )
    how = deployed.manifest.quantization
    assert how is not None
    assert {*how.observers} == {*OBSERVERS}
    assert how.observer == max(how.observers, key=lambda name: how.observers[name]) != "histogram"
    assert how.observers["histogram"] < MIN_SQNR_RANDOM_DB
    # What was compared is what the file does.
    assert deployed.manifest.parity.sqnr_db == pytest.approx(how.observers[how.observer], abs=1.5)
    assert stages.index("observers") < stages.index("build")
    assert stages.count("build") == 2  # its begin and its end: nothing is lowered twice
    assert DeployedModel.open(tmp_path) == deployed


def test_19_26_what_no_observer_reaches_is_refused_before_it_is_built(
    random_weights: ExportSource,
    calibration: Clips,
    validation: Clips,
    narrow: Callable[..., None],
    tmp_path: Path,
) -> None:
    narrow(*OBSERVERS)
    stages = set[str]()
    with pytest.raises(
        ParityFailed, match=r"3 dB .* any observer \(histogram -?\d.* dB, minmax .* moving-average"
    ) as error:
        export(
            random_weights,
            tmp_path / "out",
            precision=Precision.INT8,
            calibration=calibration,
            validation=validation,
            int8=Int8(inspect=True),
            progress=lambda at: stages.add(at.stage),
        )
    assert "--calibration-clips" in str(error.value)
    # What was looked at is told, too.
    assert error.value.quantization is not None
    blocks = sorted(error.value.quantization.blocks, key=lambda block: block.alone_db)
    assert len(blocks) == 4
    assert str(error.value).endswith(", ".join(f"{block.name} {block.alone_db:.1f} dB" for block in blocks[:3]))
    assert "build" not in stages
    assert not (tmp_path / "out").exists()


def test_where_there_are_no_blocks_to_print_a_wrong_name_lists_them(
    workspace: Workspace, narrow: Callable[..., None], tmp_path: Path
) -> None:
    narrow(*OBSERVERS)
    source = foreign_original(
        ForeignModel("of-means", NormedMeans()), default_clip("synthetic", 4), TensorSpec(1, 3, 4, 16, 16), None, seed=0
    )
    clips = open_calibration(workspace, "synthetic", source, count=4)
    with pytest.raises(
        ParityFailed, match=r"leave blocks in fp32 \(--fp32-block; a wrong name lists them\), or"
    ) as error:
        export(source, tmp_path / "out", precision=Precision.INT8, calibration=clips)
    assert error.value.quantization is None


def test_a_limited_loss_chooses_among_observers_too(
    workspace: Workspace, original: ExportSource, narrow: Callable[..., None], tmp_path: Path
) -> None:
    narrow("histogram")
    made = export(
        original,
        tmp_path / "out",
        precision=Precision.INT8,
        calibration=open_calibration(workspace, "synthetic", original, count=6, seed=5),
        validation=open_validation(workspace, "synthetic", original),
        int8=Int8(max_loss=1.0),
    )
    how = made.manifest.quantization
    assert how is not None
    assert {*how.observers} == {*OBSERVERS}
    assert how.observer == max(how.observers, key=lambda name: how.observers[name]) != "histogram"
    assert how.fp32_blocks == ()


def test_19_26_who_names_an_observer_gets_it(
    random_weights: ExportSource, calibration: Clips, validation: Clips, narrow: Callable[..., None]
) -> None:
    narrow("histogram")
    asked = plan(random_weights, calibration, validation, Int8("histogram"))
    (quantization,) = asked.attempts()
    assert (quantization.observer, quantization.observers) == ("histogram", {})


def test_19_26_histograms_that_do_are_taken_without_a_second_calibration(
    random_weights: ExportSource, calibration: Clips, validation: Clips
) -> None:
    usual = plan(random_weights, calibration, validation, Int8())
    (quantization,) = usual.attempts()
    assert (quantization.observer, quantization.observers) == ("histogram", {})
    assert [*usual._trials] == ["histogram"]
    inputs, exact = usual._judged
    assert len(inputs) == 8
    with torch.no_grad():
        rounded = torch.cat([usual._trials["histogram"].module(x) for x in inputs])
    assert usual._trials["histogram"].sqnr_db == sqnr_db(exact.double(), rounded.double())


def test_19_26_manifests_without_the_key_open(int8: DeployedModel, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(int8.path.parent, tmp_path / "copy"))
    assert "observers" not in json.loads((folder / MANIFEST).read_text())["quantization"]
    manifest = Manifest.read(folder / MANIFEST)
    assert manifest.quantization is not None
    assert manifest.quantization.observers == {}
    chosen = replace(manifest, quantization=replace(manifest.quantization, observers={"minmax": 12.5}))
    chosen.write(folder / MANIFEST)
    assert Manifest.read(folder / MANIFEST) == chosen


def test_19_26_random_weights_take_their_statistics_from_the_clips(
    workspace: Workspace, random_weights: ExportSource, calibration: Clips, validation: Clips, tmp_path: Path
) -> None:
    """Behind every normalisation the clips have mean 0; the source itself is left as it is."""
    before = {name: value.clone() for name, value in random_weights.module.state_dict().items()}
    clips = torch.cat(list(calibration.some(8)))
    met = with_statistics_of(random_weights, clips)
    assert all(torch.equal(value, before[name]) for name, value in random_weights.module.state_dict().items())
    assert max(means_behind_normalisations(met, clips)) < 1e-2
    assert max(means_behind_normalisations(random_weights, clips)) > 0.1
    made = export(
        random_weights, tmp_path / "m", precision=Precision.INT8, calibration=calibration, validation=validation
    )
    assert made.manifest.parity.sqnr_db > MIN_SQNR_RANDOM_DB


class NormedMeans(nn.Module):
    """A batch norm behind the mean over the clip: one value of each channel for a clip."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(self.conv(x).mean((2, 3, 4))))
        return logits


def test_one_clip_that_gives_no_statistics_is_refused_with_how_many_do(workspace: Workspace, tmp_path: Path) -> None:
    clip, input = default_clip("synthetic", 4), TensorSpec(1, 3, 4, 16, 16)
    made = ForeignModel("of-means", NormedMeans(), input, None)
    source = foreign_original(made, clip, input, None, seed=0)
    one = open_calibration(workspace, "synthetic", source, count=1)
    with pytest.raises(InvalidValue, match=r"^of-means .* one value per channel: add --calibration-clips 2"):
        export(source, tmp_path / "out", precision=Precision.INT8, calibration=one)
    assert not (tmp_path / "out").exists()
    two = open_calibration(workspace, "synthetic", source, count=2)
    assert _met_clips(source, two).module is not source.module


def means_behind_normalisations(source: ExportSource, clips: torch.Tensor) -> list[float]:
    """Of each normalisation the largest mean of a channel, less its bias."""
    found: list[float] = []

    def look(norm: torch.nn.BatchNorm3d, _: Any, y: torch.Tensor) -> None:
        found.append(float((y.mean((0, 2, 3, 4)) - norm.bias).abs().max()))

    norms = [layer for layer in source.module.modules() if isinstance(layer, torch.nn.BatchNorm3d)]
    hooks = [norm.register_forward_hook(look) for norm in norms]
    with torch.no_grad():
        source.module(clips)
    for hook in hooks:
        hook.remove()
    return found
