"""C2D, I3D, Slow and CSN against PyTorchVideo's, their arithmetic against their weights, a file as one delegate."""

import warnings
from itertools import pairwise

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pytorchvideo.models.hub.csn import csn_r101
    from pytorchvideo.models.hub.resnet import c2d_r50, i3d_r50, slow_r50

from hwbench.blocks import build, frames_to_batch
from hwbench.errors import UnsupportedModule
from hwbench.latency import macs, operations
from hwbench.models import deployed, network, workload_module
from hwbench.models.resnet import ResnetNetwork
from hwbench.runtimes import get
from hwbench.runtimes.runners import check_file, choose_runner
from hwbench.spaces import load_card
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.workspace import Workspace, shipped

# Card -> PyTorchVideo's network, its parameters, and the published multiply-adds of a view of 256 pixels, which count
# the arithmetic of normalisations, too.
THEIRS = {
    "c2d-r50": (c2d_r50, 24_327_632, 25.89),
    "i3d-r50": (i3d_r50, 28_043_472, 37.53),
    "slow-r50": (slow_r50, 32_454_096, 54.52),
    "csn-r101": (csn_r101, 22_213_776, 75.62),
}
STEM = "resnet-stem_i3_o8_k3x7x7_s2_p2_relu"
# A stem that sees frames, a block over time, one that pools, one with depthwise convolutions over both and a step.
KEYS = (
    STEM,
    "bottleneck_i8_m4_o16_k3x1x1+1x3x3_relu",
    "frame-pool_i16_o16_k1x1x1_ts2_identity",
    "bottleneck_i16_m8_o32_k1x1x1+3x3x3_s2_g8_ts2_swish",
    "bottleneck_i32_m8_o32_k1x1x1+1x3x3_g2_relu",
    "pool-head_i32_o5_kglobal_identity",
)
BLOCKS = tuple(BlockSpec.parse(key) for key in KEYS)
CLIP = TensorSpec(1, 3, 9, 33, 35)


def card(name: str) -> Network:
    return load_card(Workspace(shipped()), name).network()


def with_statistics(module: torch.nn.Module) -> torch.nn.Module:
    """Batch norms whose statistics and weights are not those of an untrained network."""
    generator = torch.Generator().manual_seed(1)
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm3d):
            for value, low in ((layer.running_mean, -0.2), (layer.running_var, 0.5), (layer.weight, 0.5)):
                value.data.copy_(low + torch.rand(value.shape, generator=generator))
    return module.eval()


@pytest.mark.parametrize("name", THEIRS)
def test_it_is_that_of_pytorchvideo_with_the_same_weights(name: str) -> None:
    make, parameters, _ = THEIRS[name]
    torch.manual_seed(0)
    theirs = with_statistics(make(head_pool=torch.nn.AdaptiveAvgPool3d))
    ours = network(card(name)).eval()
    assert sum(parameter.numel() for parameter in ours.parameters()) == parameters
    ours.load_state_dict(theirs.state_dict())
    clip = torch.randn(1, 3, 9, 50, 64)  # an odd number of frames, the last of which a pool over pairs leaves out
    with torch.no_grad():
        expected, got = theirs(clip), ours(clip)
    assert float((expected - got).abs().max()) <= 1e-5 * float(expected.abs().max())


def test_slow_with_half_the_frames_is_the_same_network() -> None:
    half, whole = card("slow-r50-4x16"), card("slow-r50")
    assert half.blocks == whole.blocks
    assert 2 * half.input.t == whole.input.t


@pytest.mark.parametrize(
    ("name", "published"), [*((name, values[2]) for name, values in THEIRS.items()), ("slow-r50-4x16", 27.55)]
)
def test_its_multiply_adds_are_those_that_are_published(name: str, published: float) -> None:
    blocks = card(name).blocks
    frames = card(name).input.t
    larger = Network("x", blocks, TensorSpec(1, 3, frames, 256, 256)).workload(Precision.FP32)
    assert macs(larger) / 1e9 == pytest.approx(published, rel=0.03)
    with torch.device("meta"):
        kernels = sum(p.numel() for p in network(card(name)).parameters() if p.dim() > 1)
    assert sum(one.num_weights for one in operations(card(name).workload(Precision.FP32))) == kernels


def test_the_deploy_form_computes_the_same() -> None:
    torch.manual_seed(0)
    module = with_statistics(network(Network("small", BLOCKS, CLIP), dropout=0.1)).double()
    assert isinstance(module, ResnetNetwork)
    clip = torch.randn(CLIP.shape, dtype=torch.float64)
    with torch.no_grad():
        expected, got = module(clip), deployed(module, CLIP)(frames_to_batch(clip))
    assert torch.allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_every_block_has_the_shape_that_it_says() -> None:
    x, spec = torch.randn(CLIP.shape), CLIP
    for block in BLOCKS[:-1]:
        x, spec = build(block).eval()(x), block.output(spec)
        assert tuple(x.shape) == spec.shape
    assert spec.key == "1x32x2x5x5"
    alone = BlockSpec.parse(KEYS[2])
    assert [alone.output(TensorSpec(1, 16, frames, 4, 4)).t for frames in (1, 2, 3, 4, 7)] == [1, 1, 1, 2, 3]


def test_blocks_behind_a_pool_are_a_stage_of_their_own() -> None:
    plain = BlockSpec.parse("bottleneck_i16_m4_o16_k1x1x1+1x3x3_relu")
    blocks = (*BLOCKS[:3], plain, plain, BlockSpec.parse("pool-head_i16_o5_kglobal_identity"))
    module = network(Network("flat", blocks, CLIP))
    names = {name.partition(".branch2")[0] for name, _ in module.named_parameters()}
    assert names >= {"blocks.1.res_blocks.0", "blocks.3.res_blocks.0", "blocks.3.res_blocks.1"}
    assert not any(name.startswith("blocks.2.") for name in names)


def test_other_blocks_make_no_resnet() -> None:
    with pytest.raises(UnsupportedModule, match="expected a resnet-stem, bottleneck blocks and a pool-head"):
        ResnetNetwork(BLOCKS[1:])
    for key, said in (
        ("bottleneck_i8_m4_o16_k3x3x3+1x3x3_relu", "a pointwise kernel or one over time"),
        ("bottleneck_i8_m4_o16_k1x1x1+1x3x3_g3_relu", "channels inside that its groups divide"),
        ("frame-pool_i8_o16_k1x1x1_ts2_identity", "a pool such as"),
    ):
        with pytest.raises(UnsupportedModule, match=said):
            build(BlockSpec.parse(key))


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_file_is_one_delegate_and_runs(precision: str, tmp_path, runner_cache) -> None:
    one = Workload(BLOCKS, TensorSpec(1, 3, 4, 32, 32), Precision(precision))
    assert all(a.output(TensorSpec(1, a.in_channels, 4, 8, 8)).c == b.in_channels for a, b in pairwise(BLOCKS[:-1]))
    torch.manual_seed(0)
    module, example = workload_module(one)
    out = tmp_path / "resnet.pte"
    report = get("executorch").build(module, (example,), one, out, [(example,)] * (precision == "int8")).delegation
    assert (report.delegates, dict(report.undelegated)) == (1, {})
    assert check_file(out, runner=choose_runner("executorch", runner_cache, None)).output.shape == (1, 5)
