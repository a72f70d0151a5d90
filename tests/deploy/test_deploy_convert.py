"""Whole models, also foreign ones, to deploy form; the flow of 2021 from end to end."""

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from hwbench.blocks.mobile_cpu import (
    AdaptiveAvgPool3dOutSize1,
    Conv3d5x1x1BnAct,
    Conv3dPwBnAct,
    FullyConnected,
    X3dBottleneckBlock,
    supported_act_functions,
)
from hwbench.deploy import convert_to_deployable_form, optimize_for_mobile
from hwbench.errors import UnsupportedModule
from hwbench.models import EfficientX3d


class Tutorial(nn.Module):
    """A network as the tutorial of 2021 builds it: a stem, a residual block, pooling, a last layer in 5-D."""

    def __init__(self, num_classes: int = 4) -> None:
        super().__init__()
        self.s1 = Conv3d5x1x1BnAct(3, 24, bias=False, groups=1, use_bn=False)
        self.s2 = X3dBottleneckBlock(
            in_channels=24, mid_channels=72, out_channels=24, use_residual=True, spatial_stride=1, se_ratio=0.0625,
            act_functions=("relu", "swish", "relu"), use_bn=(True, True, True),
        )  # fmt: skip
        self.avg_pool = AdaptiveAvgPool3dOutSize1()
        self.projection = FullyConnected(24, num_classes, bias=True)
        self.act = supported_act_functions["relu"]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.avg_pool(self.s2(self.s1(x)))
        x = self.projection(x.permute((0, 2, 3, 4, 1)))
        if not self.training:
            x = self.act(x).mean([1, 2, 3])
        return x.view(x.shape[0], -1)


@pytest.fixture
def clip() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(1, 3, 4, 6, 6)


def test_the_tutorials_network(clip: torch.Tensor) -> None:
    model = Tutorial()
    deployed = convert_to_deployable_form(model, clip)
    assert model.training
    assert set(deployed.conversion.converted) == {"s1", "s2", "avg_pool", "projection", "act"}
    with torch.no_grad():
        torch.testing.assert_close(deployed(clip), model.eval()(clip), rtol=1e-5, atol=1e-6)
    assert not [m for m in deployed.modules() if isinstance(m, nn.Conv3d | nn.BatchNorm3d)]


class Stubs(nn.Module):
    """A network between the stubs of eager-mode quantisation."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.quant = torch.quantization.QuantStub()
        self.model = module
        self.dequant = torch.quantization.DeQuantStub()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dequant(self.model(self.quant(x)))


@pytest.mark.filterwarnings("ignore")  # torch announces the end of TorchScript and of eager-mode quantisation
def test_the_flow_of_2021_in_torchscript(clip: torch.Tensor, tmp_path: Path) -> None:
    deployed = convert_to_deployable_form(Tutorial(), clip)
    traced = optimize_for_mobile(torch.jit.trace(deployed, clip, strict=False))
    torch.testing.assert_close(traced(clip), deployed(clip), rtol=1e-5, atol=1e-6)
    wrapped = Stubs(deployed)
    wrapped.qconfig = torch.quantization.default_qconfig
    prepared = torch.quantization.prepare(wrapped)
    for _ in range(8):
        prepared(torch.randn_like(clip))
    prepared(clip)
    quantised = torch.quantization.convert(prepared)
    assert not [m for m in quantised.modules() if type(m) in (nn.Conv2d, nn.Linear)]
    script = optimize_for_mobile(torch.jit.trace(quantised, clip, strict=False))
    script.save(tmp_path / "int8.pt")
    script = torch.jit.load(tmp_path / "int8.pt")
    with torch.no_grad():
        expected, got = deployed(clip), script(clip)
    assert float((got - expected).norm() / expected.norm()) < 0.2
    assert not torch.equal(got, expected)


@pytest.mark.filterwarnings("ignore")
def test_the_flow_of_2021_runs_without_calibration_as_the_tutorial_does(clip: torch.Tensor) -> None:
    wrapped = Stubs(convert_to_deployable_form(Tutorial(), clip))
    wrapped.qconfig = torch.quantization.default_qconfig
    quantised = torch.quantization.convert(torch.quantization.prepare(wrapped))
    script = optimize_for_mobile(torch.jit.trace(quantised, clip, strict=False))
    assert script(clip).shape == (1, 4)


class Inputs(nn.Module):
    """Two inputs, one by name; a shared block, one that is not reached, a plain layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Conv3dPwBnAct(3, 3)
        self.again = self.first
        self.unused = Conv3dPwBnAct(3, 3)
        self.plain = nn.Conv3d(3, 2, 1)

    def forward(self, x: torch.Tensor, *, other: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": self.plain(self.again(self.first(x) + other))}


def test_several_inputs_shared_and_unreached_blocks() -> None:
    model, x = Inputs().train(), torch.randn(2, 3, 2, 5, 5)
    model.first.kernel.bn.eval()
    deployed = convert_to_deployable_form(model, (x,), {"other": x})
    assert deployed.conversion.converted == ("first",)
    assert "does not reach" in deployed.conversion.kept["unused"]
    assert deployed.first is deployed.again
    with torch.no_grad():
        expected = model.eval()(x, other=x)["sum"]
        torch.testing.assert_close(deployed(x, other=x)["sum"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (lambda block: block.register_forward_hook(lambda module, args, y: 2 * y), "it has hooks"),
        (lambda block: block.kernel.bn.register_forward_hook(lambda module, args, y: 2 * y), "kernel.bn has hooks"),
        (lambda block: block.kernel.bn.register_forward_pre_hook(lambda module, args: 2 * args[0]), "bn has hooks"),
        (lambda block: setattr(block.kernel.bn, "forward", lambda x: 2 * x), "a forward that was replaced"),
        (lambda block: nn.utils.parametrizations.weight_norm(block.kernel.conv), "parametrisations"),
    ],
)
def test_a_block_with_hooks_stays(alter: Callable[[nn.Module], object], reason: str, clip: torch.Tensor) -> None:
    model = nn.Sequential(Conv3dPwBnAct(3, 4), Conv3dPwBnAct(4, 4)).eval()
    alter(model[1])
    deployed = convert_to_deployable_form(model, clip)
    assert deployed.conversion.converted == ("0",)
    assert reason in deployed.conversion.kept["1"]
    with torch.no_grad():
        torch.testing.assert_close(deployed(clip), model(clip), rtol=1e-5, atol=1e-6)


class Doubled(Conv3dPwBnAct):
    """A block that computes something else than the one whose deploy form it inherits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Fixed(Conv3dPwBnAct):
    """A block that no double precision reaches."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.float())


def refuse_double(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    if inputs[0].itemsize != 4:
        raise ValueError("numbers of four bytes, please")


class Strict(Conv3dPwBnAct):
    """Says in words of its own that it takes no double precision."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        refuse_double(self, (x,))
        return super().forward(x)


class StrictForm(Conv3dPwBnAct):
    """Its deploy form takes no double precision, and says so in words of its own."""

    def deployable(self, shape: tuple[int, ...], variant: str = "auto") -> nn.Module:
        form = super().deployable(shape, variant)
        form.register_forward_pre_hook(refuse_double)
        return form


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (lambda block: setattr(block.layers.conv_2, "__class__", Doubled), "computes something else"),
        (lambda block: block.layers.conv_0.kernel.add_module("plus", nn.Softplus()), "got plus, too"),
        (lambda block: setattr(block.layers.conv_0.kernel, "act", nn.Tanh()), "expected an activation of hwbench"),
        (lambda block: setattr(block.layers, "se", nn.Identity()), "layers.se: expected an efficient block"),
        (lambda block: setattr(block, "final_act", nn.Tanh()), "final_act: expected an activation of hwbench"),
        (lambda block: block.layers.se.se.block.append(nn.Tanh()), "squeeze-excite: expected two convolutions"),
    ],
)
def test_a_block_whose_layers_were_exchanged_stays(
    alter: Callable[[nn.Module], object], reason: str, clip: torch.Tensor
) -> None:
    block = X3dBottleneckBlock(in_channels=4, mid_channels=9, out_channels=4, se_ratio=0.5)
    model = nn.Sequential(Conv3dPwBnAct(3, 4), block).eval()
    alter(block)
    deployed = convert_to_deployable_form(model, clip)
    assert deployed.conversion.converted == ("0",)
    assert reason in deployed.conversion.kept["1"]
    with torch.no_grad():
        torch.testing.assert_close(deployed(clip), model(clip), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_no_other_function(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = EfficientX3d(num_classes=5).to(dtype), torch.zeros(1, 3, 4, 32, 32, dtype=dtype)
    state = torch.get_rng_state()
    assert convert_to_deployable_form(model, x).conversion.converted == ("",)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("block", [Fixed, Strict, StrictForm])
def test_a_block_that_fixes_its_dtype_is_converted(block: type[Conv3dPwBnAct], clip: torch.Tensor) -> None:
    assert convert_to_deployable_form(block(3, 4), clip).conversion.converted == ("",)


def test_a_last_layer_may_be_an_ordinary_one() -> None:
    torch.manual_seed(0)
    model, x = EfficientX3d(num_classes=5).eval(), torch.randn(1, 3, 4, 32, 32)
    model.projection = nn.Linear(2048, 7)
    with torch.no_grad():
        torch.testing.assert_close(convert_to_deployable_form(model, x)(x), model(x), rtol=1e-4, atol=1e-5)
    model.projection = nn.Sequential(model.projection)
    with pytest.raises(UnsupportedModule, match=r"the model itself: .* projection: expected a linear layer"):
        convert_to_deployable_form(model, x)


def test_a_pruned_block_is_converted(clip: torch.Tensor) -> None:
    model = nn.Sequential(Conv3dPwBnAct(3, 4)).eval()
    prune.random_unstructured(model[0].kernel.conv, "weight", 0.5)
    with torch.no_grad():
        torch.testing.assert_close(convert_to_deployable_form(model, clip)(clip), model(clip), rtol=1e-5, atol=1e-6)


def test_training_modes_are_given_back() -> None:
    model, x = Inputs().train(), torch.randn(2, 3, 2, 5, 5)
    model.first.kernel.bn.eval()
    statistics = model.first.kernel.bn.running_mean.clone()
    convert_to_deployable_form(model, (x,), {"other": x})
    assert model.training
    assert model.first.kernel.training
    assert not model.first.kernel.bn.training
    assert torch.equal(model.first.kernel.bn.running_mean, statistics)


def test_the_example_is_left_as_it_is(clip: torch.Tensor) -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Conv3dPwBnAct(3, 3)

        def forward(self, x: torch.Tensor, others: list[torch.Tensor], *, mean: torch.Tensor) -> torch.Tensor:
            x -= mean.neg_()
            return self.block(x) + others[0].relu_()

    model, arguments = InPlace().eval(), (clip, [torch.randn_like(clip)], torch.randn(3, 1, 1, 1))
    before = copy.deepcopy(arguments)
    deployed = convert_to_deployable_form(model, arguments[:2], {"mean": arguments[2]})
    assert deployed.conversion.converted == ("block",)
    torch.testing.assert_close(arguments, before, rtol=0, atol=0)


def test_a_block_on_two_sizes_is_refused() -> None:
    class TwoSizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Conv3dPwBnAct(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x).mean() + self.block(x[:, :, :1]).mean()

    with pytest.raises(UnsupportedModule, match="block: runs on inputs of several sizes"):
        convert_to_deployable_form(TwoSizes(), torch.randn(1, 3, 2, 4, 4))


def test_nothing_to_convert_is_loud() -> None:
    with pytest.raises(UnsupportedModule, match="no efficient block"):
        convert_to_deployable_form(nn.Conv3d(3, 4, 1), torch.randn(1, 3, 2, 4, 4))
    model = nn.ModuleDict({"unused": Conv3dPwBnAct(3, 3)})
    model.forward = lambda x: x
    with pytest.raises(UnsupportedModule, match="0 of 1 efficient blocks"):
        convert_to_deployable_form(model, torch.randn(1, 3, 2, 4, 4))


def test_a_whole_network_is_one_folded_module() -> None:
    torch.manual_seed(0)
    model = EfficientX3d(num_classes=5).eval()
    x = torch.randn(2, 3, 3, 33, 40)
    deployed = convert_to_deployable_form(model, x)
    with torch.no_grad():
        torch.testing.assert_close(deployed(x), model(x), rtol=1e-4, atol=1e-5)
    assert deployed.conversion.converted == ("",)
    with pytest.raises(UnsupportedModule, match="was made for inputs of shape"):
        deployed(x[:1])
