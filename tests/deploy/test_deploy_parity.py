"""What is asked of a file in each precision."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from hwbench.blocks.graph import deploy_graph
from hwbench.data import ClipSpec, Normalisation
from hwbench.deploy import export
from hwbench.deploy.external import ForeignModel, ForeignNetwork, foreign_original
from hwbench.deploy.manifest import ParityRecord
from hwbench.deploy.manifest_records import WeightsOrigin
from hwbench.deploy.noise import noise_clips
from hwbench.deploy.parity import (
    DeployFormError,
    OutputComparison,
    check_deploy_form,
    check_parity,
    compare,
    doubts,
)
from hwbench.deploy.source import ExportSource, with_statistics_of
from hwbench.deploy.transmute import transmute_model
from hwbench.errors import CheckFailed, InvalidValue, ParityFailed, UnsupportedModule
from hwbench.models import Unfolded, frames_to_batch
from hwbench.runtimes import get
from hwbench.runtimes.runners import FloatArray
from hwbench.specs import Precision, TensorSpec


def parity(sqnr_db: float) -> ParityRecord:
    return ParityRecord("noise", 8, 1e-6, 1e-15, 0.1, 0.01, 0.1, sqnr_db, 1.0)


@pytest.mark.parametrize(
    ("precision", "trained", "least"),
    [
        ("fp16", True, 40),
        ("bf16", True, 30),
        ("int8", True, 10),
        ("fp16", False, 3),  # X3D-XS is at 32: random layers amplify what rounding leaves of each
        ("bf16", False, 3),
        ("int8", False, 3),
    ],
)
def test_the_least_sqnr_of_a_precision(precision: str, trained: bool, least: float) -> None:
    check_parity(parity(least), Precision(precision), trained=trained)
    with pytest.raises(ParityFailed, match=f"SQNR of {least - 0.1:.1f} dB .* at least {least} dB"):
        check_parity(parity(least - 0.1), Precision(precision), trained=trained)


def record(before: torch.Tensor, after: torch.Tensor, source: str = "synthetic") -> ParityRecord:
    """Of logits (clips, classes)."""
    comparison = OutputComparison()
    for video, (one, other) in enumerate(zip(before, after, strict=True)):
        comparison.add(video, one[None], other[None])
    return comparison.parity(source, DeployFormError(0, 0))


def logits(variation: float, clips: int = 16) -> torch.Tensor:
    """What 16 classes have in common for all clips, rms 1, and what each clip changes."""
    generator = torch.Generator().manual_seed(0)
    shared, own = torch.randn(16, generator=generator), torch.randn(clips, 16, generator=generator)
    return shared / shared.square().mean().sqrt() + variation * (own - own.mean(0))


@pytest.mark.parametrize("precision", ["int8", "fp16", "bf16"])
@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("source", ["synthetic", "noise"])
def test_a_file_that_ignores_its_input_is_refused(precision: str, trained: bool, source: str) -> None:
    before = logits(0.1)
    found = record(before, before.mean(0, keepdim=True).expand_as(before), source)
    assert found.sqnr_db == pytest.approx(20, abs=1)
    assert found.centred_sqnr_db == pytest.approx(0, abs=1e-6)
    # As if it were above the bound of fp16, too: another file may be.
    with pytest.raises(ParityFailed, match="answers 16 different clips alike"):
        check_parity(replace(found, sqnr_db=60.0), Precision(precision), trained=trained)
    honest = record(before, before + 0.03 * logits(1.0).roll(1, 0), source)
    check_parity(replace(honest, sqnr_db=60.0), Precision(precision), trained=trained)
    assert doubts(honest, trained=trained) == ()


def test_answers_to_other_clips_are_refused_with_trained_weights_on_videos_and_told_elsewhere() -> None:
    before = logits(0.2)
    found = record(before, before.roll(1, 0))
    assert found.sqnr_db > 10
    assert found.centred_sqnr_db is not None
    assert found.centred_sqnr_db < 0
    with pytest.raises(ParityFailed, match="in what tells clips apart, expected at least 3 dB"):
        check_parity(found, Precision.INT8, trained=True)
    for source, trained, cause in (("synthetic", False, "random weights"), ("noise", True, "noise")):
        elsewhere = replace(found, source=source)
        check_parity(elsewhere, Precision.INT8, trained=trained)
        (reason,) = doubts(elsewhere, trained=trained)
        assert reason.startswith(f"these clips prove little ({cause})")


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_clips_that_a_network_hardly_tells_apart_are_told(precision: str) -> None:
    before = logits(0.001)
    found = record(before, before.mean(0, keepdim=True).expand_as(before))
    check_parity(replace(found, max_relative_error=0), Precision(precision), trained=True)
    reason, _ = doubts(found, trained=True)
    assert "the network itself hardly tells them apart" in reason
    (other,) = doubts(record(before, before), trained=True)  # they prove it of a file as good as this
    assert other.startswith("top-1 proves little")


def test_an_original_that_answers_every_clip_alike_is_told() -> None:
    before = logits(0.0).mean(0, keepdim=True).expand(7, -1)
    found = record(before, before)
    assert (found.centred_sqnr_db, found.variation_db) == (0.0, -150.0)
    assert "hardly tells them apart" in doubts(found, trained=True)[0]


def test_an_original_that_answers_one_class_is_told_and_not_refused() -> None:
    before = logits(0.3)
    favoured = before.clone()
    favoured[:, 5] += 20
    found = record(favoured, favoured + 0.01 * before)
    assert (found.same_top1, found.top1_classes) == (1.0, 1)
    check_parity(found, Precision.INT8, trained=True)
    (reason,) = doubts(found, trained=True)
    assert reason == "top-1 proves little: the highest logit of the original is that of one class for all 16 clips"
    assert doubts(replace(found, source="noise"), trained=True) == doubts(found, trained=False) == ()
    several = record(before, before)
    assert several.top1_classes is not None
    assert several.top1_classes > 1
    assert doubts(several, trained=True) == ()


def test_a_network_that_training_with_rounding_moved_far_is_told() -> None:
    start, made = logits(0.3), logits(0.3).roll(1, 1)
    comparison = OutputComparison()
    for video in range(len(made)):
        comparison.add(video, made[video][None], made[video][None], start[video][None])
    found = comparison.parity("synthetic", DeployFormError(0, 0))
    assert (found.rounding_sqnr_db, found.sqnr_db < 10) == (150.0, True)
    check_parity(comparison.lowering("synthetic", DeployFormError(0, 0)), Precision.INT8, trained=True)
    assert "moved the network far from what it started from" in doubts(found, trained=True)[0]


def test_a_network_that_training_with_rounding_moved_in_what_tells_clips_apart_is_told() -> None:
    made, shared = logits(1.0), 6.0
    comparison = OutputComparison()
    for video, start in enumerate(made.roll(1, 0)):
        comparison.add(video, made[video][None] + shared, made[video][None] + shared, start[None] + shared)
    found = comparison.parity("synthetic", DeployFormError(0, 0))
    assert found.sqnr_db > 10 > 3 > found.centred_sqnr_db
    (reason,) = doubts(replace(found, top1_classes=2), trained=True)
    assert reason.startswith(
        "training with the rounding of int8 moved the network far from what it started from (SQNR 1"
    )


def test_one_clip_is_told() -> None:
    before = logits(1.0, clips=1)
    found = record(before, before)
    assert (found.centred_sqnr_db, found.variation_db, found.file_variation_db) == (None, None, None)
    check_parity(found, Precision.INT8, trained=True)
    (reason,) = doubts(found, trained=True)
    assert reason.startswith("one clip proves little")


CLIP = TensorSpec(1, 3, 4, 8, 8)


class InPlace(nn.Module):
    """Normalises the clip where it lies, as ``transforms.functional.normalize(x, ..., inplace=True)`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x -= 0.45
        return torch.relu(self.conv(x.div_(0.225))).mean((2, 3, 4))


class Noise:
    """The same clips every time, as those that an export without videos compares on."""

    def __init__(self, count: int = 4) -> None:
        generator = torch.Generator().manual_seed(0)
        self.clips = [torch.randn(CLIP.shape, generator=generator) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.clips)

    def views(self) -> Iterator[tuple[int, torch.Tensor]]:
        yield from enumerate(self.clips)


def test_a_model_that_changes_its_clip_in_place_is_compared_on_the_clip_as_it_was() -> None:
    torch.manual_seed(0)
    module, noise = InPlace().eval(), Noise()
    kept = [clip.clone() for clip in noise.clips]
    deployed, error = check_deploy_form(module, lambda m: Unfolded(m, CLIP), noise.clips[0])
    assert error.fp32 == error.fp64 == 0

    def run(frames: FloatArray) -> FloatArray:
        with torch.no_grad():
            answer: FloatArray = deployed(torch.from_numpy(frames.copy())).numpy()
        return answer

    for _ in range(2):
        comparison = compare(module, run, noise, lambda *_: None, start=module)
        assert torch.equal(torch.cat(comparison.before), torch.cat(comparison.after))
        assert torch.equal(torch.cat(comparison.before), torch.cat(comparison.start))
    assert all(torch.equal(clip, before) for clip, before in zip(noise.clips, kept, strict=True))


def test_a_model_that_changes_its_clip_in_place_is_rewritten() -> None:
    torch.manual_seed(0)
    module, clip = InPlace().eval(), torch.randn(CLIP.shape)
    with torch.no_grad():
        assert torch.allclose(deploy_graph(module, clip)(frames_to_batch(clip)), module(clip), 1e-5, 1e-5)


class FramesAsChannels(nn.Module):
    """Takes a view of its clip that torch allows of a contiguous one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CLIP.c * CLIP.t, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.view(len(x), -1, *x.shape[3:])).mean((2, 3))


def test_a_model_that_takes_a_view_of_its_clip_is_run_on_frames_as_any_other() -> None:
    torch.manual_seed(0)
    module, clip = FramesAsChannels().eval(), torch.randn(CLIP.shape)
    with torch.no_grad():
        assert torch.equal(Unfolded(module, CLIP)(frames_to_batch(clip).contiguous()), module(clip))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_damaged_weights_are_no_defect_of_the_deploy_form(value: float) -> None:
    module = InPlace().eval()
    with torch.no_grad():
        module.conv.weight[0] = value
    for deploy in (lambda m: Unfolded(m, CLIP), lambda m: deploy_graph(m, torch.zeros(CLIP.shape))):
        with pytest.raises(CheckFailed, match="original module are not finite numbers; its weights are damaged"):
            check_deploy_form(module, deploy, torch.randn(CLIP.shape))


class OfFloats(nn.Module):
    """Converts its input itself, as code for pixels in bytes does."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.conv(x.float()).mean((2, 3, 4))
        return logits


def expect_refused(module: nn.Module, clip: torch.Tensor, said: str) -> None:
    """Whatever makes a deploy form of a model refuses it in these words."""
    with pytest.raises(UnsupportedModule, match=said):
        check_deploy_form(module, lambda m: Unfolded(m, CLIP), clip)
    with pytest.raises(UnsupportedModule, match=said):
        deploy_graph(module, clip)
    with pytest.raises(UnsupportedModule, match=said):
        transmute_model(module, example_input=clip)


def test_a_forward_that_fixes_a_dtype_is_refused_as_such() -> None:
    module, clip = OfFloats().eval(), torch.randn(CLIP.shape)
    said = r"^OfFloats: its forward fixes a dtype, .*; write x\.to\(self\.fc\.weight\.dtype\) in place of x\.float"
    expect_refused(module, clip, said)


class OfFourBytes(OfFloats):
    """Says in words of its own that numbers have four bytes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.itemsize != 4:
            raise ValueError("numbers of four bytes, please")
        return super().forward(x)


def test_a_forward_that_takes_no_double_precision_fixes_a_dtype_whatever_it_says() -> None:
    module, clip = OfFourBytes().eval(), torch.randn(CLIP.shape)
    said = r"^OfFourBytes: its forward fixes a dtype, .*double precision \(numbers of four bytes, please\); write x\.to"
    expect_refused(module, clip, said)
    with pytest.raises(InvalidValue, match=r"^OfFourBytes does not take a clip of .*: numbers of four bytes, please"):
        deploy_graph(module, clip.double())


def test_a_module_that_holds_a_lock_is_refused_by_the_name_of_the_attribute() -> None:
    module = nn.Sequential(nn.Conv3d(3, 4, 1), nn.AdaptiveAvgPool3d(1), nn.Flatten()).eval()
    module.lock = threading.Lock()  # type: ignore[assignment]
    clip = torch.randn(CLIP.shape)
    with pytest.raises(UnsupportedModule, match="its attribute lock cannot be copied"):
        check_deploy_form(module, lambda m: Unfolded(m, CLIP), clip)
    network = ForeignNetwork("locked", CLIP, 4)
    with pytest.raises(UnsupportedModule, match="its attribute lock cannot be copied"):
        with_statistics_of(ExportSource(network, module, ClipSpec(2, stride=1), WeightsOrigin("random", seed=0)), clip)


class OfBytes(nn.Module):
    """Takes pixels of 0 to 255, and is beyond the range of fp16 for them and not for numbers about 0."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv3d(3, 8, 3), nn.Conv3d(8, 8, 1), nn.Linear(8, 5)
        with torch.no_grad():
            self.first.weight.fill_(2.0)
            self.second.weight.fill_(2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.second(self.first(x).relu()).relu().mean((2, 3, 4)))
        return logits


def test_noise_is_as_large_as_the_pixels_that_a_model_takes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ForeignModel("of-bytes", OfBytes(), CLIP, Normalisation((0.0,) * 3, (1 / 255,) * 3))
    source = foreign_original(model, ClipSpec(4, stride=1), CLIP, None, None)
    (clip,) = noise_clips(source, 1)
    assert 100 < float(clip.mean()) < 130
    assert 45 < float(clip.std()) < 70
    with pytest.raises(CheckFailed, match="exported file are not finite numbers"):
        export(source, tmp_path / "out", precision=Precision.FP16, runtime=get("torchscript"))
    usual = replace(source, normalisation=Normalisation())
    assert torch.equal(noise_clips(usual, 1)[0], torch.randn(CLIP.shape, generator=torch.Generator().manual_seed(0)))
    assert export(usual, tmp_path / "out", precision=Precision.FP16, runtime=get("torchscript")).path.is_file()
