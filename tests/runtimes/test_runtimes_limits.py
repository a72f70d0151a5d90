"""What is known to go wrong in the engine: refused in words, or made to work."""

import pytest
import torch
from torch import nn

from hwbench.blocks.mobile_cpu import SqueezeExcitation
from hwbench.blocks.mobile_cpu.layouts import PER_FRAME
from hwbench.blocks.mobile_cpu.temporal import folded_conv
from hwbench.errors import DelegationFailed
from hwbench.runtimes.executorch import ExecuTorch
from hwbench.runtimes.runners import check_file
from hwbench.specs import Precision, TensorSpec, Workload

FP32 = Workload.parse("conv_i4_o4_k1x1x1_relu@1x4x4x6x6/fp32/auto")
INT8 = Workload(FP32.blocks, FP32.input, Precision.INT8)
FRAMES = FP32.input.folded


class Calls(nn.Module):
    """A function of a convolution and the input."""

    def __init__(self, function, conv=None):
        super().__init__()
        self.conv = conv or nn.Conv2d(4, 4, 1)
        self.function = function

    def forward(self, x):
        return self.function(self.conv, x)


def noise(seed, shape=FRAMES):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def difference(tmp_path, module, precision, shape=FRAMES):
    """The largest difference between the file that is run and the module, in parts of the largest output."""
    module = module.eval()
    workload = INT8 if precision == "int8" else FP32
    calibration = [noise(seed, shape) for seed in range(1, 5)] if precision == "int8" else []
    file = ExecuTorch().build(module, noise(0, shape), workload, tmp_path / "m.pte", calibration)
    x = noise(1, shape)
    got = torch.from_numpy(check_file(file.path, x.numpy()).output)
    with torch.no_grad():
        expected = module(x)
    return float((got - expected).abs().max() / expected.abs().max().clamp(min=1e-3))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (nn.Sequential(nn.Conv3d(4, 4, 3, padding=1)), "convolution"),
        (nn.Sequential(nn.Conv3d(4, 4, 1), nn.BatchNorm3d(4)), "convolution"),
        (nn.Sequential(nn.AvgPool3d(2)), "avg_pool3d"),
        (nn.Sequential(nn.MaxPool3d(2)), "max_pool3d"),
    ],
    ids=["conv3d", "conv3d and norm", "avg_pool3d", "max_pool3d"],
)
def test_five_dimensions_have_no_kernel_and_are_refused(tmp_path, module, named):
    x = torch.randn(1, 4, 4, 6, 6)
    with pytest.raises(DelegationFailed, match=named):
        ExecuTorch().build(module.eval(), x, FP32, tmp_path / "m.pte", [])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda conv, x: conv(x)[1], "select"),
        (lambda conv, x: conv(x).unsqueeze(2), "unsqueeze"),
        (lambda conv, x: conv(x).mean((0, 2, 3)), "mean"),
        (lambda conv, x: conv(x)[::2], "slice"),
    ],
    ids=["select", "unsqueeze(2)", "mean over three", "slice with a step"],
)
def test_what_the_delegate_leaves_outside_is_refused_by_name(tmp_path, function, named):
    with pytest.raises(DelegationFailed, match=named):
        ExecuTorch().build(Calls(function).eval(), noise(0), FP32, tmp_path / "m.pte", [])


SHARED = nn.Conv2d(4, 4, 3, padding=1, groups=4)
WORKS = {
    "biased convolution called twice": Calls(lambda conv, x: conv(x) + conv(x.relu() * 3), SHARED),
    "slice between convolutions (executorch#21831)": Calls(lambda conv, x: torch.cat([conv(x)[1:], conv.out(x)[:1]])),
    "padding same and relu (executorch#20517)": nn.Sequential(nn.Conv2d(4, 4, 3, padding="same"), nn.ReLU()),
    "padding by a constant": Calls(lambda conv, x: conv(nn.functional.pad(x, (1, 1, 1, 1)))),
    "average over the frame, padding counted (executorch#21862)": nn.Sequential(nn.Conv2d(4, 4, 1), nn.AvgPool2d(6)),
    "norm in a bare Sequential (executorch#21542)": nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4)),
    "hard sigmoid": nn.Sequential(nn.Conv2d(4, 4, 1), nn.Hardsigmoid()),
    "hard swish": nn.Sequential(nn.Conv2d(4, 4, 1), nn.Hardswish(), nn.Conv2d(4, 4, 1)),
    "one channel in (executorch#19153)": nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU()),
    "one channel squeezed to one": SqueezeExcitation(1, 1, is_3d=True).to_deploy(TensorSpec(1, 1, 4, 6, 6)),
    "frame by frame, as in 2021": folded_conv(
        nn.Conv3d(4, 4, 3, padding=1, groups=4), None, nn.Identity(), FP32.input, PER_FRAME
    ),
}
WORKS["slice between convolutions (executorch#21831)"].conv.out = nn.Conv2d(4, 4, 1)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", WORKS)
def test_known_trouble_that_works_here(tmp_path, name, precision):
    shape = (4, 1, 6, 6) if name.startswith("one channel") else FRAMES
    limit = 0.1 if precision == "int8" else 1e-5
    assert difference(tmp_path, WORKS[name], precision, shape) < limit


def test_outputs_that_are_all_zero_have_a_scale(tmp_path):
    """executorch#8994: an output scale next to nothing."""
    conv = nn.Conv2d(4, 4, 1)
    nn.init.zeros_(conv.weight)
    nn.init.zeros_(conv.bias)
    assert difference(tmp_path, nn.Sequential(conv, nn.ReLU(), nn.Conv2d(4, 4, 1)), "int8") < 0.1


def test_a_batch_of_any_size_is_not_offered(tmp_path):
    file = ExecuTorch().build(nn.Conv2d(4, 4, 1).eval(), noise(0), FP32, tmp_path / "m.pte", [])
    assert check_file(file.path).output.shape == FRAMES
