"""Equal to PyTorchVideo 0.1.5: the same weights give the same output, in both forms of both.

The weights are random, with random statistics of every batch norm. PyTorchVideo's deploy form is made by its own
``convert``; where that has a defect (odd sizes with stride 2) the size is another.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import hwbench.blocks.mobile_cpu as ours
from hwbench.blocks import EfficientBlock
from hwbench.deploy import convert_to_deployable_form
from hwbench.models import (
    EfficientX3d,
    WeightsForm,
    create_x3d,
    efficient_from_vanilla,
    translated,
    vanilla_from_efficient,
)

with warnings.catch_warnings(action="ignore"):  # torch calls parts of it deprecated while it is imported
    from pytorchvideo.accelerator.deployment.mobile_cpu.utils import model_conversion
    from pytorchvideo.layers.accelerator.mobile_cpu import (
        activation_functions,
        attention,
        convolutions,
        fully_connected,
        pool,
    )
    from pytorchvideo.models import x3d
    from pytorchvideo.models.accelerator.mobile_cpu import efficient_x3d, residual_blocks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@dataclass(frozen=True)
class Pair:
    """Both classes, what both are made with, and the shape of an input."""

    theirs: Callable[..., nn.Module]
    ours: Callable[..., nn.Module]
    options: dict[str, Any]
    shape: tuple[int, ...] = (2, 6, 4, 8, 10)

    def made(self) -> tuple[nn.Module, nn.Module, torch.Tensor]:
        """Both with the same weights, and an input."""
        torch.manual_seed(0)
        theirs, mine = self.theirs(**self.options), self.ours(**self.options)
        settle(theirs)
        mine.load_state_dict(theirs.state_dict(), strict=True)
        return theirs.double().eval(), mine.double().eval(), torch.randn(self.shape, dtype=torch.float64)


def settle(module: nn.Module) -> None:
    """Statistics as after training."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.1)


def blocks(name: str, module: Any, **options: Any) -> Pair:
    shape = options.pop("shape", (2, 6, 4, 8, 10))
    return Pair(getattr(module, name), getattr(ours, name), options, shape)


def bottleneck(**options: Any) -> Pair:
    options = {
        "in_channels": 6,
        "mid_channels": 12,
        "out_channels": 6,
        "act_functions": ("relu", "swish", "relu"),
    } | options
    return Pair(residual_blocks.X3dBottleneckBlock, ours.X3dBottleneckBlock, options)


PAIRS = {
    "pointwise": blocks("Conv3dPwBnAct", convolutions, in_channels=6, out_channels=9, activation="swish"),
    "pointwise, bias": blocks("Conv3dPwBnAct", convolutions, in_channels=6, out_channels=9, bias=True, use_bn=False),
    "depthwise": blocks("Conv3d3x3x3DwBnAct", convolutions, in_channels=6, activation="hswish", norm_eps=1e-3),
    "depthwise, stride": blocks("Conv3d3x3x3DwBnAct", convolutions, in_channels=6, spatial_stride=2,
                                shape=(1, 6, 5, 7, 9)),
    "depthwise, one frame": blocks("Conv3d3x3x3DwBnAct", convolutions, in_channels=6, shape=(2, 6, 1, 5, 5)),
    "spatial": blocks("Conv3dTemporalKernel1BnAct", convolutions, in_channels=6, out_channels=4, groups=2, bias=True,
                      spatial_kernel=5, spatial_stride=2, spatial_padding=4, spatial_dilation=2),
    "over time": blocks("Conv3d3x1x1BnAct", convolutions, in_channels=6, out_channels=4, shape=(2, 6, 2, 5, 3)),
    "over more time": blocks("Conv3d5x1x1BnAct", convolutions, in_channels=6, out_channels=6, groups=6,
                             activation="identity", shape=(1, 6, 7, 5, 3)),
    "squeeze-excite": blocks("SqueezeExcitation", attention, num_channels=6, num_channels_reduced=2, is_3d=True),
    "squeeze-excite of pictures": blocks("SqueezeExcitation", attention, num_channels=6, reduction_ratio=3.0,
                                         activation=nn.Hardswish(), shape=(2, 6, 5, 7)),
    "pool": blocks("AdaptiveAvgPool3dOutSize1", pool),
    "pool of pictures": blocks("AdaptiveAvgPool2dOutSize1", pool, shape=(2, 6, 5, 7)),
    "pool to a size": blocks("AdaptiveAvgPool3d", pool, output_size=(2, 3, 1)),
    "pool of pictures to a size": blocks("AdaptiveAvgPool2d", pool, output_size=(2, 3), shape=(2, 6, 5, 7)),
    "last layer": blocks("FullyConnected", fully_connected, in_features=6, out_features=5, shape=(2, 3, 6)),
    **{name: blocks(name, activation_functions) for name in ("Swish", "HardSwish", "ReLU", "Identity")},
    "bottleneck": bottleneck(),
    "bottleneck, stride": bottleneck(spatial_stride=2, out_channels=8),
    "bottleneck, plain": bottleneck(se_ratio=0, use_residual=False, act_functions=("hswish", "identity", "swish")),
    "bottleneck, biases": bottleneck(bias=(True, True, True), use_bn=(False, True, False), se_ratio=0.5, norm_eps=1e-4),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_a_block(name: str) -> None:
    theirs, mine, x = PAIRS[name].made()
    assert isinstance(mine, EfficientBlock)
    assert theirs.state_dict().keys() == mine.state_dict().keys()
    with torch.no_grad():
        expected = theirs(x)
        same(mine(x), expected)
        theirs.float().convert(tuple(x.shape))  # type: ignore[operator]
        nearly(theirs(x.float()), expected)
        same(mine.deployable(tuple(x.shape))(x), expected)


@pytest.mark.parametrize("name", ["depthwise", "squeeze-excite", "Swish", "bottleneck, stride"])
def test_the_gradients_of_a_block(name: str) -> None:
    theirs, mine, x = PAIRS[name].made()
    gradients = []
    for module in (theirs.train(), mine.train()):
        inputs = x.clone().requires_grad_()
        (module(inputs) * torch.arange(x.shape[-1])[: module(inputs).shape[-1]]).sum().backward()
        gradients.append([inputs.grad, *(p.grad for p in module.parameters())])
    for mine_, theirs_ in zip(*gradients, strict=True):
        torch.testing.assert_close(mine_, theirs_, rtol=1e-8, atol=1e-8)


def test_the_whole_efficient_network() -> None:
    pair = Pair(efficient_x3d.EfficientX3d, EfficientX3d, {"num_classes": 11, "expansion": "XS"}, (1, 3, 2, 32, 32))
    theirs, mine, x = pair.made()
    with torch.no_grad():
        expected = theirs(x)
        same(mine(x), expected)
        nearly(model_conversion.convert_to_deployable_form(theirs.float(), x.float())(x.float()), expected)
        same(convert_to_deployable_form(mine, x)(x), expected)


@pytest.mark.parametrize("size", ["XS", "S", "M", "L"])
def test_names_and_shapes_of_all_sizes(size: str) -> None:
    with torch.device("meta"):
        same_shapes(efficient_x3d.EfficientX3d(expansion=size), EfficientX3d(expansion=size))
        depth = 5.0 if size == "L" else 2.2
        same_shapes(x3d.create_x3d(depth_factor=depth), create_x3d(expansion=size))


def test_the_vanilla_network_and_the_ways_between() -> None:
    """Pooling at the end is over the nominal size, where both agree."""
    torch.manual_seed(0)
    theirs = x3d.create_x3d(
        input_clip_length=3, input_crop_size=32, model_num_class=11, dropout_rate=0.0, head_activation=None
    )
    settle(theirs)
    theirs.double().eval()
    x = torch.randn(2, 3, 3, 32, 32, dtype=torch.float64)
    weights = theirs.state_dict()
    with torch.no_grad():
        expected = theirs(x)
        same(loaded(create_x3d(num_classes=11), weights)(x), expected)
        efficient = efficient_from_vanilla(weights)
        same(loaded(EfficientX3d(num_classes=11), efficient)(x), expected)
        # Theirs with the weights that we translate, too.
        same(loaded(efficient_x3d.EfficientX3d(num_classes=11), efficient)(x), expected)
        slow = translated(weights, WeightsForm.PYSLOWFAST)
        assert all(torch.equal(value, weights[name]) for name, value in translated(slow, WeightsForm.VANILLA).items())


def test_the_way_back_folds_the_first_shortcut() -> None:
    torch.manual_seed(0)
    theirs = efficient_x3d.EfficientX3d(num_classes=11, dropout=0.0)
    settle(theirs)
    theirs.double().eval()
    vanilla = x3d.create_x3d(
        input_clip_length=2, input_crop_size=32, model_num_class=11, dropout_rate=0.0, head_activation=None
    )
    x = torch.randn(1, 3, 2, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        same(loaded(vanilla, vanilla_from_efficient(theirs.state_dict()))(x), theirs(x))


def loaded(module: nn.Module, weights: dict[str, torch.Tensor]) -> nn.Module:
    module.load_state_dict(weights, strict=True)
    return module.double().eval()


def same(y: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)


def nearly(y: torch.Tensor, expected: torch.Tensor) -> None:
    """In single precision, which is what their ``convert`` makes."""
    torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4)


def same_shapes(theirs: nn.Module, mine: nn.Module) -> None:
    shapes = [{name: tuple(value.shape) for name, value in module.state_dict().items()} for module in (theirs, mine)]
    assert shapes[0] == shapes[1]
