"""SlowFast against PyTorchVideo's, its deploy form against itself, its file as one delegate."""

import warnings
from functools import partial

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pytorchvideo.models.hub.slowfast import slowfast_16x8_r101_50_50, slowfast_r50, slowfast_r101
    from pytorchvideo.models.slowfast import create_slowfast

from hwbench.blocks import frames_to_batch
from hwbench.errors import UnsupportedModule
from hwbench.latency import macs, operations
from hwbench.models import deployed, network, workload_module
from hwbench.models.slowfast import SlowFastNetwork, levels_of
from hwbench.runtimes import get
from hwbench.runtimes.runners import check_file, choose_runner
from hwbench.spaces import load_card
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.workspace import Workspace, shipped

# Card -> PyTorchVideo's network, its parameters, and the published multiply-adds of a view of 256 pixels, which count
# the arithmetic of normalisations, too.
THEIRS = {
    "slowfast-r50": (slowfast_r50, 34_566_488, 65.71),
    "slowfast-r101": (slowfast_r101, 62_826_968, 127.20),
    "slowfast-r101-16x8": (slowfast_16x8_r101_50_50, 53_774_808, 215.61),
    # no function of the hub: as PySlowFast's configs/Kinetics/pytorchvideo/SLOWFAST_4x16_R50.yaml makes it
    "slowfast-r50-4x16": (
        partial(create_slowfast, slowfast_fusion_conv_kernel_size=(5, 1, 1), slowfast_fusion_conv_stride=(8, 1, 1)),
        34_480_216,
        36.69,
    ),
}
KEYS = (
    "pathway-split_i3_o3_k1x1x1_al4_identity",
    "1:resnet-stem_i3_o8_k1x7x7_s2_p2_relu",
    "2:resnet-stem_i3_o2_k5x7x7_s2_p2_relu",
    "pathway-fuse_i8_o12_k5x1x1_al4_fc2_relu",
    "1:bottleneck_i12_m4_o16_k1x1x1+1x3x3_relu",
    "1:bottleneck_i16_m4_o16_k3x1x1+1x3x3_relu",
    "2:bottleneck_i2_m2_o4_k3x1x1+1x3x3_relu",
    "pathway-fuse_i16_o24_k7x1x1_al4_fc4_relu",
    "1:bottleneck_i24_m4_o16_k1x1x1+1x3x3_s2_relu",
    "2:bottleneck_i4_m2_o4_k3x1x1+1x3x3_s2_relu",
    "pathway-head_i16_o5_kglobal_fc4_identity",
)
BLOCKS = tuple(BlockSpec.parse(key) for key in KEYS)
CLIP = TensorSpec(1, 3, 8, 33, 35)


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
def test_a_card_has_the_published_numbers(name: str) -> None:
    _, parameters, published = THEIRS[name]
    with torch.device("meta"):
        ours = network(card(name))
    assert sum(parameter.numel() for parameter in ours.parameters()) == parameters
    larger = Network("x", card(name).blocks, card(name).input.with_(h=256, w=256)).workload(Precision.FP32)
    assert macs(larger) / 1e9 == pytest.approx(published, rel=0.03)
    kernels = sum(p.numel() for p in ours.parameters() if p.dim() > 1)
    assert sum(one.num_weights for one in operations(larger)) == kernels


@pytest.mark.parametrize(
    "name",
    ["slowfast-r50", "slowfast-r50-4x16"]
    + [pytest.param(name, marks=pytest.mark.long) for name in ("slowfast-r101", "slowfast-r101-16x8")],
)
def test_it_is_that_of_pytorchvideo_with_the_same_weights(name: str) -> None:
    torch.manual_seed(0)
    theirs = with_statistics(THEIRS[name][0](head_pool=torch.nn.AdaptiveAvgPool3d))
    ours = network(card(name)).eval()
    ours.load_state_dict(theirs.state_dict())
    clip = torch.randn(1, 3, 16, 50, 64)
    with torch.no_grad():
        expected, got = theirs([clip[:, :, :: 8 if name.endswith("4x16") else 4], clip]), ours(clip)
    assert float((expected - got).abs().max()) <= 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("frames", [pytest.param(4, marks=pytest.mark.long), 7])
def test_the_deploy_form_computes_the_same(frames: int) -> None:
    torch.manual_seed(0)
    spec = CLIP.with_(t=frames)
    module = with_statistics(network(Network("small", BLOCKS, spec), dropout=0.1)).double()
    assert isinstance(module, SlowFastNetwork)
    clip = torch.randn(spec.shape, dtype=torch.float64)
    with torch.no_grad():
        expected, got = module(clip), deployed(module, spec)(frames_to_batch(clip))
    assert torch.allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_levels_end_with_a_connection_or_where_the_slow_pathway_goes_on() -> None:
    inner = BLOCKS[1:-1]
    counts = [[len(part) for part in (level.slow, level.fast, level.fuse)] for level in levels_of(inner)]
    assert counts == [[1, 1, 1], [2, 1, 1], [1, 1, 0]]
    unfused = [block for block in inner if not block.kind.endswith("fuse")]
    assert [len(level.slow) for level in levels_of(unfused)] == [1, 2, 1]


def test_other_blocks_make_no_slowfast() -> None:
    with pytest.raises(UnsupportedModule, match="expected a pathway-split, blocks of both pathways"):
        SlowFastNetwork(BLOCKS[1:])
    with pytest.raises(UnsupportedModule, match="expected a pathway-split, blocks of both pathways"):
        SlowFastNetwork((*BLOCKS[:2], BLOCKS[-1]))


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_file_is_one_delegate_and_runs(precision: str, tmp_path, runner_cache) -> None:
    one = Workload(BLOCKS, TensorSpec(1, 3, 8, 32, 32), Precision(precision))
    torch.manual_seed(0)
    module, example = workload_module(one)
    out = tmp_path / "slowfast.pte"
    report = get("executorch").build(module, (example,), one, out, [(example,)] * (precision == "int8")).delegation
    assert (report.delegates, dict(report.undelegated)) == (1, {})
    assert check_file(out, runner=choose_runner("executorch", runner_cache, None)).output.shape == (1, 5)
