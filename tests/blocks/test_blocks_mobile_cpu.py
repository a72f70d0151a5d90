"""Blocks under the field's names against vanilla layers: same weights, same output, same gradients."""

import pytest
import torch
from torch import nn

from hwbench.blocks import mobile_cpu
from hwbench.blocks.mobile_cpu import (
    AdaptiveAvgPool2d,
    AdaptiveAvgPool2dOutSize1,
    AdaptiveAvgPool3d,
    Conv3d3x1x1BnAct,
    Conv3d3x3x3DwBnAct,
    Conv3d5x1x1BnAct,
    Conv3dPwBnAct,
    Conv3dTemporalKernel1BnAct,
    FullyConnected,
    NoOpConvertBlock,
    SqueezeExcitation,
    X3dBottleneckBlock,
    supported_act_functions,
)
from hwbench.errors import UnknownName, UnsupportedModule
from hwbench.specs import TensorSpec
from hwbench.specs.widths import squeezed

ACTIVATIONS = {"relu": nn.ReLU, "swish": nn.SiLU, "hswish": nn.Hardswish, "identity": nn.Identity} | {"gelu": nn.GELU}
BLOCKS = {
    "pw": (lambda act: Conv3dPwBnAct(4, 6, activation=act), lambda: nn.Conv3d(4, 6, 1, bias=False)),
    "dw": (
        lambda act: Conv3d3x3x3DwBnAct(4, 2, activation=act),
        lambda: nn.Conv3d(4, 4, 3, (1, 2, 2), 1, groups=4, bias=False),
    ),
    "1xkxk": (
        lambda act: Conv3dTemporalKernel1BnAct(
            4, 6, spatial_kernel=3, spatial_stride=2, spatial_padding=2, spatial_dilation=2, activation=act
        ),
        lambda: nn.Conv3d(4, 6, (1, 3, 3), (1, 2, 2), (0, 2, 2), (1, 2, 2), bias=False),
    ),
    "3x1x1": (
        lambda act: Conv3d3x1x1BnAct(4, 6, groups=2, activation=act),
        lambda: nn.Conv3d(4, 6, (3, 1, 1), 1, (1, 0, 0), groups=2, bias=False),
    ),
    "5x1x1": (
        lambda act: Conv3d5x1x1BnAct(4, 4, groups=4, activation=act),
        lambda: nn.Conv3d(4, 4, (5, 1, 1), 1, (2, 0, 0), groups=4, bias=False),
    ),
}


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("name", BLOCKS)
def test_original_form_is_the_vanilla_layers(name: str, act: str) -> None:
    torch.manual_seed(0)
    block, conv = BLOCKS[name][0](act), BLOCKS[name][1]()
    vanilla = nn.Sequential(conv, nn.BatchNorm3d(conv.out_channels), ACTIVATIONS[act]())
    block.kernel.conv.load_state_dict(conv.state_dict())
    block.train()
    x, z = (torch.randn(2, 4, 5, 7, 8).requires_grad_() for _ in range(2))
    z.data.copy_(x.data)
    got, expected = block(x), vanilla(z)
    assert torch.equal(got, expected)
    got.square().sum().backward()
    expected.square().sum().backward()
    assert torch.equal(x.grad, z.grad)
    assert torch.equal(block.kernel.conv.weight.grad, conv.weight.grad)
    assert torch.equal(block.kernel.bn.running_var, vanilla[1].running_var)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize(("bias", "use_bn"), [(True, True), (True, False), (False, False)])
def test_deploy_form_with_and_without_bias_and_norm(name: str, bias: bool, use_bn: bool) -> None:
    torch.manual_seed(0)
    arguments = {"bias": bias, "use_bn": use_bn, "activation": "swish", "norm_eps": 0.1, "norm_momentum": 0.3}
    made = {
        "pw": lambda: Conv3dPwBnAct(4, 6, **arguments),
        "dw": lambda: Conv3d3x3x3DwBnAct(4, 2, **arguments),
        "1xkxk": lambda: Conv3dTemporalKernel1BnAct(4, 6, spatial_kernel=3, spatial_dilation=2, **arguments),
        "3x1x1": lambda: Conv3d3x1x1BnAct(4, 6, **arguments),
        "5x1x1": lambda: Conv3d5x1x1BnAct(4, 6, **arguments),
    }[name]()
    made = made.double().train()
    made(torch.randn(3, 4, 4, 9, 9, dtype=torch.float64))  # moves the running statistics
    made.eval()
    x = torch.randn(1, 4, 4, 9, 9, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(made.deployable(x.shape)(x), made(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("out_channels", [4, 6])
@pytest.mark.parametrize("se_ratio", [0.0, 0.5])
@pytest.mark.parametrize("use_residual", [True, False])
def test_bottleneck(stride: int, out_channels: int, se_ratio: float, use_residual: bool) -> None:
    torch.manual_seed(0)
    block = X3dBottleneckBlock(
        4, 16, out_channels, use_residual, stride, se_ratio, ("hswish", "swish", "relu"), (True, True, True)
    )
    block = block.double().train()
    block(torch.randn(2, 4, 3, 7, 7, dtype=torch.float64))
    block.eval()
    for frames in (1, 4):
        x = torch.randn(2, 4, frames, 7, 9, dtype=torch.float64)
        with torch.no_grad():
            expected = block(x)
            got = block.deployable(x.shape)(x)
        assert expected.shape == block.output(TensorSpec(*x.shape)).shape
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_bottleneck_without_norm_has_none() -> None:
    block = X3dBottleneckBlock(4, 8, 4, use_bn=(False, False, False), bias=(True, True, True))
    assert not [m for m in block.modules() if isinstance(m, nn.BatchNorm3d)]


@pytest.mark.parametrize(("channels", "reduced"), [(54, 8), (108, 8), (216, 16), (432, 32)])
def test_squeezed_channels_of_x3d(channels: int, reduced: int) -> None:
    assert squeezed(channels, 0.0625) == reduced


def test_squeeze_excitation_on_pictures() -> None:
    block = SqueezeExcitation(6, 1, is_3d=False).double()
    x = torch.randn(3, 6, 5, 7, dtype=torch.float64)
    gate = block.se.block(x.mean((2, 3), keepdim=True))
    assert torch.equal(block(x), x * gate)
    with torch.no_grad():
        torch.testing.assert_close(block.deployable(x.shape)(x), block(x), rtol=1e-12, atol=1e-12)


def test_pools_and_the_last_layer() -> None:
    x = torch.randn(2, 3, 8, 6)
    pool = AdaptiveAvgPool2dOutSize1()
    torch.testing.assert_close(pool.deployable(x.shape)(x), nn.AdaptiveAvgPool2d(1)(x))
    assert torch.equal(AdaptiveAvgPool2d((2, 3)).deployable(x.shape)(x), nn.AdaptiveAvgPool2d((2, 3))(x))
    clip = torch.randn(2, 3, 4, 8, 6)
    assert torch.equal(AdaptiveAvgPool3d(2)(clip), nn.AdaptiveAvgPool3d(2)(clip))
    layer = FullyConnected(6, 5)
    assert torch.equal(layer.deployable(x.shape)(x), layer.model(x))
    assert set(layer.state_dict()) == {"model.weight", "model.bias"}


@pytest.mark.parametrize("name", supported_act_functions)
def test_activations_in_both_forms(name: str) -> None:
    block = supported_act_functions[name]()
    x = torch.randn(2, 3, 4)
    expected = ACTIVATIONS[name]()(x)
    assert torch.equal(block.eval()(x.clone()), expected)
    torch.testing.assert_close(block.deployable(x.shape)(x), expected)


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(UnknownName, match="did you mean 'swish'"):
        Conv3dPwBnAct(4, 6, activation="swich")
    with pytest.raises(UnsupportedModule, match="would not be converted"):
        NoOpConvertBlock(nn.Sequential(Conv3dPwBnAct(4, 6)))
    with pytest.raises(UnsupportedModule, match="one of the kernels"):
        X3dBottleneckBlock(4, 8, 4, kernel=((3, 5, 5),))
    block = Conv3dPwBnAct(4, 6)
    block.kernel.bn = nn.BatchNorm3d(6, track_running_stats=False)
    with pytest.raises(UnsupportedModule, match="running statistics"):
        block.to_deploy(TensorSpec(1, 4, 4, 8, 8))
    block = Conv3dPwBnAct(4, 6)
    block.kernel.conv = nn.Conv3d(4, 6, (3, 1, 1), stride=(2, 1, 1), padding=(1, 0, 0))
    with pytest.raises(UnsupportedModule, match="stride 1"):
        block.to_deploy(TensorSpec(1, 4, 4, 8, 8))


def test_all_names_of_the_field_are_there() -> None:
    names = """Conv3dPwBnAct Conv3d3x3x3DwBnAct Conv3dTemporalKernel1BnAct Conv3d3x1x1BnAct Conv3d5x1x1BnAct
        SqueezeExcitation Swish HardSwish ReLU Identity supported_act_functions AdaptiveAvgPool3dOutSize1
        AdaptiveAvgPool2dOutSize1 AdaptiveAvgPool3d AdaptiveAvgPool2d FullyConnected NoOpConvertBlock
        X3dBottleneckBlock"""
    assert set(names.split()) <= set(mobile_cpu.__all__)
