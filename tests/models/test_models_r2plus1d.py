"""R(2+1)D against PyTorchVideo's, its arithmetic against its weights, its deploy form against itself."""

import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pytorchvideo.models.r2plus1d import create_r2plus1d

from hwbench.blocks import build, frames_to_batch
from hwbench.blocks.deployment import BlockChain, deploy_form
from hwbench.errors import UnsupportedModule
from hwbench.latency import macs, operations
from hwbench.models import deployed, network
from hwbench.models.r2plus1d import R2plus1dNetwork
from hwbench.spaces import load_card
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.workspace import Workspace, shipped

CARD = load_card(Workspace(shipped()), "r2plus1d-r50").network()
KEYS = (
    "resnet-stem_i3_o8_k1x7x7_s2_relu",
    "r2plus1d_i8_m4_o16_k3x1x1+1x3x3_s2_relu",
    "r2plus1d_i16_m4_o16_k3x1x1+1x3x3_relu",
    "r2plus1d_i16_m8_o32_k3x1x1+1x3x3_s2_ts2_swish",
    "pool-head_i32_o5_kglobal_identity",
)
BLOCKS = tuple(BlockSpec.parse(key) for key in KEYS)
CLIP = TensorSpec(1, 3, 5, 33, 35)


def with_statistics(module: torch.nn.Module) -> torch.nn.Module:
    """Batch norms whose statistics and weights are not those of an untrained network."""
    generator = torch.Generator().manual_seed(1)
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm3d):
            for value, low in ((layer.running_mean, -0.2), (layer.running_var, 0.5), (layer.weight, 0.5)):
                value.data.copy_(low + torch.rand(value.shape, generator=generator))
    return module.eval()


def test_it_is_that_of_pytorchvideo_with_the_same_weights() -> None:
    torch.manual_seed(0)
    theirs = with_statistics(create_r2plus1d(model_num_class=400, head_activation=None))
    ours = network(CARD).eval()
    assert sum(parameter.numel() for parameter in ours.parameters()) == 28_107_600
    missing = ours.load_state_dict(theirs.state_dict())
    assert (missing.missing_keys, missing.unexpected_keys) == ([], [])
    clip = torch.randn(1, 3, 16, 224, 224)
    with torch.no_grad():
        expected, got = theirs(clip), ours(clip)
    assert float((expected - got).abs().max()) <= 1e-5 * max(float(expected.abs().max()), 1.0)


def test_its_multiply_adds_are_those_that_are_published() -> None:
    # the card's figure is of a view of 256 pixels, and counts the arithmetic of normalisations, too
    larger = Network("x", CARD.blocks, TensorSpec(1, 3, 16, 256, 256)).workload(Precision.FP32)
    assert macs(larger) / 1e9 == pytest.approx(76.45, rel=0.02)
    kernels = sum(p.numel() for p in network(CARD).parameters() if p.dim() > 1)
    assert sum(one.num_weights for one in operations(CARD.workload(Precision.FP32))) == kernels


@pytest.mark.parametrize("spec", BLOCKS, ids=str)
@pytest.mark.parametrize("frames", [1, 4, 5])
def test_shapes_and_keys_of_blocks(spec: BlockSpec, frames: int) -> None:
    x = TensorSpec(2, spec.in_channels, frames, 15, 18)
    made = build(spec).eval()(torch.randn(x.shape))
    assert tuple(made.shape) == spec.output(x).shape[: made.dim()]
    assert BlockSpec.parse(spec.key) == spec
    weights = sum(p.numel() for p in build(spec).parameters() if p.dim() > 1)
    assert sum(one.num_weights for one in spec.operations(x)) == weights


def test_the_deploy_form_computes_the_same() -> None:
    torch.manual_seed(0)
    module = with_statistics(network(Network("small", BLOCKS, CLIP), dropout=0.1)).double()
    clip = torch.randn(CLIP.shape, dtype=torch.float64)
    with torch.no_grad():
        expected, got = module(clip), deployed(module, CLIP)(frames_to_batch(clip))
    assert torch.allclose(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_part_of_the_network_stays_folded(count: int) -> None:
    workload = Workload(BLOCKS[:count], CLIP)
    module, clip = with_statistics(BlockChain(workload.blocks)).double(), torch.randn(CLIP.shape, dtype=torch.float64)
    with torch.no_grad():
        expected, got = frames_to_batch(module(clip)), deploy_form(module, CLIP)(frames_to_batch(clip))
    assert got.shape == workload.output.folded
    assert torch.allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_axes_in_another_order_are_folded_as_they_are() -> None:
    class Swapped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.transpose(1, 2)

    clip = torch.randn(2, 3, 4, 5, 6)
    assert torch.equal(
        deploy_form(Swapped(), TensorSpec(2, 3, 4, 5, 6))(frames_to_batch(clip)), frames_to_batch(clip.transpose(1, 2))
    )


def test_other_blocks_make_no_r2plus1d() -> None:
    with pytest.raises(UnsupportedModule, match="expected a resnet-stem"):
        R2plus1dNetwork(BLOCKS[1:])
    with pytest.raises(UnsupportedModule, match="a kernel over time and one over space"):
        build(BlockSpec.parse("r2plus1d_i8_m4_o16_k3x3x3_relu"))
