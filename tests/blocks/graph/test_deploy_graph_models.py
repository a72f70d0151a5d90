"""Models that nobody wrote for a phone, as files that run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import video

from hwbench.deploy import deploy_graph
from hwbench.deploy.parity import relative_error, sqnr_db
from hwbench.deploy.source import calibrate_batch_norm
from hwbench.models import frames_to_batch
from hwbench.runtimes import get
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.runners import check_file
from hwbench.specs import BlockSpec, Precision, TensorSpec, Workload

# The smallest clip of s3d: eight frames and strides of 32 pixels must leave two frames and seven pixels to its pooling.
# The forms of the one that is not left to test-long are in the others too, and "Museum" has the rest.
CLIPS = {"r3d_18": (8, 48, 48), "mc3_18": (5, 45, 40), "r2plus1d_18": (8, 48, 48), "s3d": (13, 209, 209)}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def built(model: nn.Module, clip: torch.Tensor, precision: Precision, path: Path) -> torch.Tensor:
    """What the file of a model returns for a clip, in a process of its own."""
    workload = Workload((BlockSpec("foreign", 3, 1),), TensorSpec(1, 3, 1, 1, 1), precision)
    noise = [frames_to_batch(torch.randn_like(clip)) for _ in range(3)] if precision is Precision.INT8 else []
    with quiet():
        artifact = get("executorch").build(deploy_graph(model, clip), frames_to_batch(clip), workload, path, noise)
    assert artifact.delegation.complete
    return torch.from_numpy(np.array(check_file(path, frames_to_batch(clip).contiguous().numpy()).output))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n != "mc3_18" else ()) for n in CLIPS])
def test_a_model_of_torchvision_is_one_delegate_that_computes_the_same(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, clip = getattr(video, name)(num_classes=40).eval(), torch.randn(1, 3, *CLIPS[name])
    calibrate_batch_norm(model, torch.randn(2, *clip.shape[1:]))
    got = built(model, clip, Precision.FP32, tmp_path / "model.pte")
    with torch.no_grad():
        assert relative_error(model(clip), got) < 1e-4


class Museum(nn.Module):
    """The forms that the models above do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm3d(3), nn.Conv3d(3, 8, (4, 3, 3), (3, 1, 1), (1, 1, 1)), nn.ReLU())
        self.over_time = nn.Conv3d(8, 8, (5, 1, 1), (2, 1, 1), (2, 0, 0), groups=8)
        self.gate = nn.Conv3d(8, 8, 1)
        self.pools = nn.ModuleList([nn.MaxPool3d(3, 1, 1), nn.AvgPool3d(3, 1, 1)])
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.over_time(self.first(x))
        x = torch.cat([x[:, :, 1::2], x[:, :, :2]], 2)
        x = x * self.gate(x.mean((2, 3, 4), keepdim=True)).sigmoid() + 0.5
        x = self.pools[0](x) - self.pools[1](x)
        return self.head(x.permute(0, 2, 3, 4, 1)).mean((1, 2, 3))


def check_built(model: nn.Module, clip: torch.Tensor, precision: Precision, path: Path) -> None:
    """The file of a model is one delegate, and computes what the model does."""
    got = built(model, clip, precision, path)
    with torch.no_grad():
        expected = model(clip)
    if precision is Precision.FP32:
        assert relative_error(expected, got) < 1e-5
    else:
        assert sqnr_db(expected.double(), got.double()) > 15


@pytest.mark.parametrize("precision", [pytest.param(Precision.FP32, marks=pytest.mark.long), Precision.INT8])
def test_other_forms_are_one_delegate_as_well(precision: Precision, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model, clip = Museum().eval(), torch.randn(1, 3, 20, 9, 12)
    check_built(model, clip, precision, tmp_path / "model.pte")


class Rearranged(nn.Module):
    """Frames and channels of a clip by their numbers, and each several times."""

    def __init__(self) -> None:
        super().__init__()
        self.slow, self.fast, self.head = nn.Conv3d(3, 8, (1, 3, 3)), nn.Conv3d(3, 8, 3), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slow = torch.index_select(x, 2, torch.linspace(0, x.shape[2] - 1, 3).long())
        slow = slow[:, [2, 1, 0]].repeat_interleave(2, dim=2)[:, :, [0, 0, 1, 2, -1]]
        fast = x.repeat_interleave(2, dim=3)[:, :, [4, 4]].repeat_interleave(3, dim=2)
        features = [self.slow(slow).relu().mean((2, 3, 4)), self.fast(fast).relu().mean((2, 3, 4))]
        return self.head(torch.cat(features, 1)[:, [*range(8, 16), *range(0, 16, 2)]].repeat_interleave(2, 1)[:, 3:19])


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_places_by_number_and_repetitions_are_one_delegate(precision: Precision, tmp_path: Path) -> None:
    torch.manual_seed(2)
    model, clip = Rearranged().eval(), torch.randn(1, 3, 8, 9, 12)
    check_built(model, clip, precision, tmp_path / "model.pte")


class PicturesFirst(nn.Module):
    """A 2-D network on frames, a 3-D head behind it, attention over space, and a linear layer on tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.clips = nn.Sequential(nn.Conv3d(8, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.AvgPool3d(2))
        self.space, self.tokens = nn.Conv3d(2, 1, 3, padding=1), nn.Linear(8, 8)
        self.again, self.head = nn.Conv3d(8, 8, 1), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, t, h, w = x.shape
        y = self.pictures(x.transpose(1, 2).reshape(n * t, c, h, w))
        y = y.view(n, t, *y.shape[1:])
        consensus = y.mean(1).mean((2, 3))
        y = self.clips(y.transpose(1, 2))
        y = y * self.space(torch.cat([y.mean(1, keepdim=True), y.amax(1, keepdim=True)], 1)).sigmoid()
        tokens = self.tokens(y.flatten(2).transpose(1, 2)).view(n, *y.shape[2:], -1).permute(0, 4, 1, 2, 3)
        return self.head(self.again(tokens).mean((2, 3, 4)) + consensus)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_a_network_on_pictures_with_a_head_on_clips_is_one_delegate(precision: Precision, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model, clip = PicturesFirst().eval(), torch.randn(1, 3, 8, 17, 24)
    check_built(model, clip, precision, tmp_path / "model.pte")


class Composed(nn.Module):
    """Operations that are made of others: powers, sums, repetitions, shuffles, padding with the edge, conv1d."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(3, 8, 3, padding=1, padding_mode="replicate")
        self.pictures = nn.Conv2d(2, 8, 3, 2, 1)
        self.over_time = nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t = x.shape[0], x.shape[2]
        x = torch.max(self.first(x).clamp_min(-0.5), x.mean(1, keepdim=True).repeat(1, 8, 1, 1, 1))
        x = F.channel_shuffle(x.square(), 2) * (x.sum(2, keepdim=True).square() + 1).reciprocal()
        y = self.pictures(F.pixel_shuffle(x.transpose(1, 2).flatten(0, 1), 2))
        y = y.view(n, t, 8, -1).masked_fill(torch.arange(t).view(t, 1, 1) == 1, 0.5).mean(3)
        return self.head(self.over_time(y.transpose(1, 2)).sum(2))


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8])
def test_operations_made_of_others_are_one_delegate(precision: Precision, tmp_path: Path) -> None:
    torch.manual_seed(4)
    model, clip = Composed().eval(), torch.randn(1, 3, 6, 10, 12)
    check_built(model, clip, precision, tmp_path / "model.pte")


@pytest.mark.long
def test_a_dense_residual_network_in_int8(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, clip = video.mc3_18(num_classes=40).eval(), torch.randn(1, 3, 4, 32, 32)
    calibrate_batch_norm(model, torch.randn(2, *clip.shape[1:]))
    got = built(model, clip, Precision.INT8, tmp_path / "model.pte")
    with torch.no_grad():
        assert sqnr_db(model(clip).double(), got.double()) > 12
