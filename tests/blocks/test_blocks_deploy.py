"""Every block: shapes as its spec says, original form as vanilla layers, deploy form equal to the original."""

import itertools

import pytest
import torch
from torch import nn

from hwbench.blocks import EfficientBlock, batch_to_frames, build, frames_to_batch, variants
from hwbench.blocks.mobile_cpu.layouts import PER_FRAME
from hwbench.errors import UnknownName, UnsupportedModule
from hwbench.specs import BlockSpec, TensorSpec, block_kinds

SPECS = [
    "stem_i3_o24_k1x3x3+5x1x1_s2_relu",
    "x3d_i4_m10_o4_k3x3x3_se8_swish",
    "x3d_i4_m10_o6_k3x3x3_s2_se1_hswish",
    "x3d_i4_m1_o4_k3x3x3_identity",
    "x3d_i4_m10_o4_k1x3x3+3x1x1_s2_relu",
    "x3d_i4_m10_o4_k1x3x3_relu",
    "head_i4_m8_d16_o5_kglobal_relu",
    "conv_i4_o6_k1x1x1_swish",
    "conv_i4_o6_k1x5x5_s2_g2_hswish",
    "conv_i4_o6_k3x1x1_relu",
    "conv_i4_o6_k5x1x1_g2_swish",
    "conv_i4_o4_k3x3x3_s2_g4_identity",
    "se_i4_o4_k1x1x1_se1_relu",
    "pool_i4_o4_kglobal_relu",
]
FRAMES = (1, 2, 3, 4, 5, 6, 7, 8, 13, 16)


# Deployed through their graphs, and tested in ``tests/models``.
WITHOUT_REWRITE = {"resnet-stem", "r2plus1d", "pool-head", "hand-stem", "hand", "hand-head", "hand-network"}
WITHOUT_REWRITE |= {"squeeze-stem", "channel-time", "token-stem", "multiscale", "token-head"}
WITHOUT_REWRITE |= {"class-token-stem", "class-multiscale", "class-token-head"}
WITHOUT_REWRITE |= {"bottleneck", "frame-pool", "pathway-split", "pathway-fuse", "pathway-head"}


def test_every_kind_is_tested() -> None:
    assert {BlockSpec.parse(key).kind for key in SPECS} | WITHOUT_REWRITE == set(block_kinds.names())


def randomised(block: EfficientBlock) -> EfficientBlock:
    """Statistics as after training, so that a normalisation does something."""
    for layer in block.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.3, 2)
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return block.eval()


def made(key: str, dtype: torch.dtype) -> EfficientBlock:
    torch.manual_seed(0)
    return randomised(build(BlockSpec.parse(key))).to(dtype)


@pytest.mark.parametrize("key", ["se_i4_o4_k1x1x1_se1_relu", "x3d_i4_m10_o4_k3x3x3_se8_swish"])
def test_a_gate_keeps_its_activations(key: str) -> None:
    block, spec = made(key, torch.float64), TensorSpec(2, 4, 3, 5, 6)
    gate = next(part.block for part in block.modules() if type(part).__name__ == "_Gate")
    gate[1], gate[3] = nn.Tanh(), nn.Hardsigmoid()
    x = torch.randn(spec.shape, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(block.to_deploy(spec)(frames_to_batch(x)), frames_to_batch(block(x)))


@pytest.mark.parametrize("variant", variants.names())
@pytest.mark.parametrize("key", SPECS)
def test_deploy_form_computes_what_the_original_does(key: str, variant: str) -> None:
    block = made(key, torch.float64)
    for frames, batch, (height, width) in itertools.product(FRAMES, (1, 2, 3), ((7, 8), (5, 3))):
        x = torch.randn(batch, BlockSpec.parse(key).in_channels, frames, height, width, dtype=torch.float64)
        spec = TensorSpec(*x.shape)
        with torch.no_grad():
            expected, got = block(x), block.to_deploy(spec, variant)(frames_to_batch(x))
        got = got if expected.dim() == 2 else batch_to_frames(got, block.output(spec).t)
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("key", ["x3d_i4_m6_o4_k3x3x3_se8_ts2_swish", "x3d_i4_m6_o6_k1x3x3_s2_ts3_relu"])
@pytest.mark.parametrize("frames", [1, 4, 5])
def test_a_bottleneck_may_step_over_frames(key: str, frames: int) -> None:
    spec, block = BlockSpec.parse(key), made(key, torch.float64)
    x = torch.randn(2, spec.in_channels, frames, 7, 8, dtype=torch.float64)
    shape = TensorSpec(*x.shape)
    with torch.no_grad():
        expected, got = block(x), block.to_deploy(shape, "auto")(frames_to_batch(x))
        every = made(key.partition("_ts")[0] + "_" + key.rpartition("_")[2], torch.float64)
        if spec.stride != 1:  # else the block that takes all frames has no projection of its input
            every.load_state_dict(block.state_dict())
            torch.testing.assert_close(expected, every(x)[:, :, :: spec.number("temporal_stride")])
    assert block.output(shape) == spec.output(shape) == TensorSpec(*expected.shape)
    torch.testing.assert_close(batch_to_frames(got, expected.shape[2]), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("key", SPECS)
def test_deploy_form_in_single_precision(key: str) -> None:
    block = made(key, torch.float32)
    x = torch.randn(2, BlockSpec.parse(key).in_channels, 4, 9, 10)
    with torch.no_grad():
        expected, got = block(x), block.deployable(x.shape)(x)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("key", SPECS)
@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 5), (1, 2)])
def test_the_spec_knows_the_shape(key: str, height: int, width: int) -> None:
    spec, block = BlockSpec.parse(key), made(key, torch.float32)
    x = TensorSpec(2, spec.in_channels, 3, height, width)
    with torch.no_grad():
        real = tuple(block(torch.zeros(x.shape)).shape)
    assert spec.output(x) == block.output(x)
    assert (*real, 1, 1, 1)[:5] == spec.output(x).shape


@pytest.mark.parametrize("variant", sorted(set(variants.names()) - {PER_FRAME}))
def test_operations_do_not_grow_with_the_frames(variant: str) -> None:
    block = made("x3d_i4_m10_o6_k3x3x3_s2_se8_swish", torch.float32)

    def operations(frames: int) -> int:
        spec = TensorSpec(1, 4, frames, 8, 8)
        exported = torch.export.export(block.to_deploy(spec, variant), (torch.zeros(spec.folded),))
        return sum(node.op == "call_function" for node in exported.graph.nodes)

    assert operations(4) == operations(16)


@pytest.mark.parametrize("key", SPECS)
def test_another_size_is_refused(key: str) -> None:
    spec = BlockSpec.parse(key)
    deployed = made(key, torch.float32).deployable((1, spec.in_channels, 4, 8, 8))
    for shape in ((1, spec.in_channels, 8, 4, 8), (2, spec.in_channels, 4, 8, 8), (1, spec.in_channels, 5, 8, 8)):
        with pytest.raises(UnsupportedModule, match="was made for inputs of shape"):
            deployed(torch.zeros(shape))


@pytest.mark.parametrize("key", SPECS)
def test_the_original_is_left_as_it_is(key: str) -> None:
    block = made(key, torch.float32).train()
    before = {name: value.clone() for name, value in block.state_dict().items()}
    spec = TensorSpec(1, BlockSpec.parse(key).in_channels, 4, 8, 8)
    deployed = block.to_deploy(spec)
    assert block.training
    assert not deployed.training
    for value in (*deployed.parameters(), *deployed.buffers()):
        value.data.zero_()
    assert all(torch.equal(value, before[name]) for name, value in block.state_dict().items())


def test_deploy_form_keeps_the_dtype() -> None:
    deployed = made(SPECS[1], torch.float32).to(torch.bfloat16).to_deploy(TensorSpec(1, 4, 4, 8, 8))
    assert {value.dtype for value in deployed.parameters()} == {torch.bfloat16}


def test_unknown_names() -> None:
    block = made(SPECS[1], torch.float32)
    with pytest.raises(UnknownName, match="shift-add"):
        block.to_deploy(TensorSpec(1, 4, 4, 8, 8), "shift-ad")
    with pytest.raises(UnknownName, match="x3d"):
        build(BlockSpec("x4d", 4, 4))
    with pytest.raises(UnsupportedModule, match="expected 1x1x1"):
        build(BlockSpec("conv", 4, 4, kernel=((3, 5, 5),)))
