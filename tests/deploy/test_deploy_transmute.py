"""Layers of any model exchanged for efficient blocks: what must match, what must not, what must stay."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from hwbench.blocks import EfficientBlock
from hwbench.deploy import convert_to_deployable_form, transmute_model
from hwbench.errors import UnknownName, UnsupportedModule
from hwbench.models import create_x3d

MATCHES = {
    "pointwise": (nn.Conv3d(4, 6, 1), "Conv3dPwBnAct"),
    "depthwise": (nn.Conv3d(4, 4, 3, (1, 2, 2), 1, groups=4, bias=False), "Conv3d3x3x3DwBnAct"),
    "spatial": (nn.Conv3d(4, 6, (1, 5, 5), (1, 2, 2), (0, 4, 4), (1, 2, 2), groups=2), "Conv3dTemporalKernel1BnAct"),
    "strided": (nn.Conv3d(4, 6, 1, (1, 2, 2), bias=False), "Conv3dTemporalKernel1BnAct"),
    "over time": (nn.Conv3d(4, 6, (3, 1, 1), padding=(1, 0, 0)), "Conv3d3x1x1BnAct"),
    "over more time": (nn.Conv3d(4, 4, (5, 1, 1), padding=(2, 0, 0), groups=4), "Conv3d5x1x1BnAct"),
    "uneven padding": (nn.Conv3d(4, 4, (1, 3, 3), padding=(0, 1, 0)), "ConvBnAct"),
    "uneven dilation": (nn.Conv3d(4, 4, (1, 3, 3), dilation=(1, 2, 1)), "ConvBnAct"),
    "uneven stride": (nn.Conv3d(4, 4, 1, stride=(1, 2, 1)), "ConvBnAct"),
    "uneven kernel": (nn.Conv3d(4, 6, (3, 1, 5), padding=(1, 0, 2)), "ConvBnAct"),
    "dense": (nn.Conv3d(4, 4, 3, padding=1), "ConvBnAct"),
    "multiplier": (nn.Conv3d(4, 8, 3, padding=1, groups=4), "ConvBnAct"),
    "seven": (nn.Conv3d(4, 4, (7, 1, 1), padding=(3, 0, 0)), "ConvBnAct"),
    "average": (nn.AvgPool3d(2, (1, 2, 3), (1, 0, 1)), "Pool3d"),
    "average without padding": (nn.AvgPool3d(3, 2, 1, count_include_pad=False), "Pool3d"),
    "average of frames": (nn.AvgPool3d((1, 3, 2)), "Pool3d"),
    "maximum": (nn.MaxPool3d(3, (2, 2, 1), 1), "Pool3d"),
    "maximum with gaps": (nn.MaxPool3d((2, 3, 1), 1, 0, (2, 2, 1)), "Pool3d"),
    "pooling": (nn.AdaptiveAvgPool3d(1), "AdaptiveAvgPool3dOutSize1"),
    "pooling by axis": (nn.AdaptiveAvgPool3d((1, 1, 1)), "AdaptiveAvgPool3dOutSize1"),
}


class Causal(nn.Conv3d):
    """Looks back in time only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.pad(x, (0, 0, 0, 0, 2, 0)))[:, :, : x.shape[2]]


def replaced_forward(layer: nn.Module) -> nn.Module:
    layer.forward = lambda x: 2 * x
    return layer


REFUSED = {
    "replicate": nn.Conv3d(4, 4, (1, 3, 3), padding=(0, 1, 1), padding_mode="replicate"),
    "stride over time": nn.Conv3d(4, 4, (3, 1, 1), stride=(2, 1, 1), padding=(1, 0, 0)),
    "no padding over time": nn.Conv3d(4, 4, (3, 1, 1)),
    "padding in words": nn.Conv3d(4, 4, 3, padding="same", groups=4),
    "subclass": Causal(4, 4, 1),
    "stride and dilation over time": nn.Conv3d(4, 4, (3, 1, 1), dilation=(2, 1, 1), padding=(2, 0, 0)),
    "even kernel over time": nn.Conv3d(4, 4, (2, 1, 1)),
    "circular": nn.Conv3d(4, 4, 3, padding=1, groups=4, padding_mode="circular"),
    "forward replaced": replaced_forward(nn.Conv3d(4, 4, 1)),
    "parametrised": nn.utils.parametrizations.weight_norm(nn.Conv3d(4, 4, 1)),
    "on no device": nn.Conv3d(4, 4, 1, device="meta"),
    "pooling to two": nn.AdaptiveAvgPool3d(2),
    "maximum of everything": nn.AdaptiveMaxPool3d(1),
    "indices": nn.MaxPool3d(2, return_indices=True),
    "windows over the edge": nn.AvgPool3d(2, ceil_mode=True),
    "a divisor": nn.AvgPool3d(2, divisor_override=3),
}


@pytest.mark.parametrize("name", MATCHES)
def test_matches(name: str) -> None:
    torch.manual_seed(0)
    layer, block = MATCHES[name]
    model = nn.Sequential(layer)
    x = torch.randn(2, 4, 3, 9, 8)
    with torch.no_grad():
        expected = layer(x)
        report = transmute_model(model)
        assert report.replaced == {"0": block}
        assert isinstance(model[0], EfficientBlock)
        torch.testing.assert_close(model(x), expected)
        torch.testing.assert_close(convert_to_deployable_form(model, x)(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_be_the_same_stays(name: str) -> None:
    layer = REFUSED[name]
    model = nn.Sequential(layer, nn.Conv3d(4, 4, 1))
    report = transmute_model(model)
    assert model[0] is layer
    assert set(report.kept) == {"0"}
    assert report.kept["0"]
    with pytest.raises(UnsupportedModule, match="nothing can be replaced"):
        transmute_model(nn.Sequential(layer))


def test_everything_about_the_weights_stays() -> None:
    shared = nn.Conv3d(4, 4, 1).to(torch.float16).requires_grad_(False).eval()
    model = nn.ModuleDict({"a": nn.Sequential(shared), "b": nn.Sequential(shared)})
    weight = shared.weight
    transmute_model(model)
    first, second = model["a"][0], model["b"][0]
    assert first is second
    assert first.kernel.conv.weight is weight
    assert weight.dtype is torch.float16
    assert not weight.requires_grad
    assert not first.training
    tied = nn.ModuleDict({"a": nn.Conv3d(4, 4, 1), "b": nn.Conv3d(4, 4, 1)})
    tied["b"].weight = tied["a"].weight
    transmute_model(tied)
    assert tied["a"].kernel.conv.weight is tied["b"].kernel.conv.weight


def test_the_root_a_dry_run_and_hooks() -> None:
    root = nn.Conv3d(4, 4, 1)
    assert isinstance(transmute_model(root).model, EfficientBlock)
    model = nn.Sequential(nn.Conv3d(4, 4, 1))
    report = transmute_model(model, dry_run=True)
    assert report.replaced == {"0": "Conv3dPwBnAct"}
    assert type(model[0]) is nn.Conv3d
    model[0].register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedModule, match="hooks"):
        transmute_model(model)
    with pytest.raises(UnknownName, match="mobile_cpu"):
        transmute_model(model, "mobile_gpu")


def test_a_pruned_model() -> None:
    model = nn.Sequential(nn.Conv3d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 4, 1))
    prune.l1_unstructured(model[0], "weight", 0.5)
    model.last, x = [model(torch.randn(1, 4, 3, 5, 6))], torch.randn(1, 4, 3, 5, 6)
    assert "2" in transmute_model(model, dry_run=True).replaced
    assert "2" in transmute_model(model, example_input=x).replaced
    deployed = convert_to_deployable_form(model, x)
    with torch.no_grad():
        torch.testing.assert_close(deployed(x), model.eval()(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_example_is_left_as_it_is(dtype: torch.dtype) -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv3d(4, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x -= 0.45
            return self.conv(x)

    x = torch.randn(1, 4, 3, 5, 6, dtype=dtype)
    before = x.clone()
    assert transmute_model(InPlace(), example_input=x).replaced == {"conv": "Conv3dPwBnAct"}
    assert torch.equal(x, before)


def test_a_vanilla_network() -> None:
    torch.manual_seed(0)
    model = create_x3d(num_classes=3, depth_factor=0.4, width_factor=1.0, head_width=64).eval()
    x = torch.randn(1, 3, 3, 40, 48)
    with torch.no_grad():
        expected = model(x)
        report = transmute_model(model)
        assert not report.kept
        torch.testing.assert_close(model(x), expected)
        deployed = convert_to_deployable_form(model, x)
        torch.testing.assert_close(deployed(x), expected, rtol=1e-4, atol=1e-5)
    assert not [m for m in deployed.modules() if isinstance(m, nn.Conv3d)]
