"""X3D in efficient and vanilla form: sizes, names, equality, deploy form."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from hwbench.blocks import build
from hwbench.errors import InvalidValue, UnknownName, UnsupportedModule
from hwbench.models import (
    Continued,
    EfficientX3d,
    create_x3d,
    deployed,
    eager_workload,
    efficient,
    efficient_from_vanilla,
    frames_to_batch,
    network,
    workload_module,
    x3d_blocks,
)
from hwbench.spaces import load_card
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.workspace import Workspace, shipped

SIZES = {"XS": (3_794_322, 568), "S": (3_794_322, 568), "M": (3_794_322, 568), "L": (6_153_432, 1146)}


def trained(module: nn.Module) -> nn.Module:
    """Statistics as after training."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
    return module.eval()


@pytest.mark.parametrize("size", SIZES)
def test_parameters_and_names(size: str) -> None:
    parameters, names = SIZES[size]
    with torch.device("meta"):
        module, vanilla = EfficientX3d(expansion=size), create_x3d(expansion=size)
    assert sum(p.numel() for p in module.parameters()) == parameters
    assert len(module.state_dict()) == names
    # The first shortcut of vanilla X3D has no normalisation: 48 parameters and 5 names fewer.
    assert sum(p.numel() for p in vanilla.parameters()) == parameters - 48
    assert len(vanilla.state_dict()) == names - 5


def test_names_are_those_of_the_published_weights() -> None:
    with torch.device("meta"):
        state = EfficientX3d().state_dict()
    shapes = {
        "s1.pathway0_stem_conv_xy.kernel.conv.weight": (24, 3, 1, 3, 3),
        "s1.pathway0_stem_conv.kernel.conv.weight": (24, 1, 5, 1, 1),
        "s1.pathway0_stem_conv.kernel.bn.running_mean": (24,),
        "s2.pathway0_res0._res_proj.kernel.conv.weight": (24, 24, 1, 1, 1),
        "s2.pathway0_res0._res_proj.kernel.bn.num_batches_tracked": (),
        "s3.pathway0_res4.layers.conv_1.kernel.conv.weight": (108, 1, 3, 3, 3),
        "s5.pathway0_res6.layers.se.se.block.0.weight": (32, 432, 1, 1, 1),
        "s5.pathway0_res6.layers.se.se.block.2.bias": (432,),
        "head.conv_5.kernel.conv.weight": (432, 192, 1, 1, 1),
        "head.lin_5.kernel.conv.weight": (2048, 432, 1, 1, 1),
        "projection.model.weight": (400, 2048),
    }
    assert {name: tuple(state[name].shape) for name in shapes} == shapes


@pytest.mark.parametrize("size", ["XS", "S", "M", "L"])
def test_the_blocks_are_those_of_the_card(size: str) -> None:
    for family in ("efficient-x3d", "x3d"):
        card = load_card(Workspace(shipped()), f"{family}-{size.lower()}")
        assert card.network().blocks == x3d_blocks(size)


def test_vanilla_weights_in_an_efficient_network() -> None:
    torch.manual_seed(0)
    vanilla = trained(create_x3d(expansion="XS", num_classes=7)).double()
    module = efficient(vanilla)
    x = torch.randn(2, 3, 3, 45, 64, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(module.eval()(x), vanilla(x), rtol=1e-9, atol=1e-9)
    with pytest.raises(InvalidValue, match="no weight of an X3D of form x3d"):
        efficient_from_vanilla({"fc.weight": torch.zeros(1)})
    with pytest.raises(UnsupportedModule, match="XS, S, M or L"):
        efficient(create_x3d(depth_factor=1.0))


@pytest.mark.parametrize("edge", [160, 182, 224, 256, 312, 356])
@pytest.mark.parametrize("size", ["XS", pytest.param("L", marks=pytest.mark.long)])
def test_deploy_form_of_the_whole_network(size: str, edge: int) -> None:
    """S and M have the blocks of XS (``test_the_blocks_are_those_of_the_card``)."""
    assert x3d_blocks("XS") == x3d_blocks("S") == x3d_blocks("M")
    torch.manual_seed(0)
    module = trained(EfficientX3d(expansion=size, num_classes=11)).double()
    x = torch.randn(1, 3, 2, edge, edge, dtype=torch.float64)
    with torch.no_grad():
        expected = module(x)
        torch.testing.assert_close(
            deployed(module, TensorSpec(*x.shape))(frames_to_batch(x)), expected, rtol=1e-9, atol=1e-10
        )


@pytest.mark.parametrize(
    ("options", "layer"),
    [
        ({"inner_act": nn.ReLU}, "blocks.1.res_blocks.0.branch2.act_b is ReLU"),
        ({"stem_stride": (1, 1, 1)}, "blocks.0.conv.conv_t is Conv3d"),
        ({"norm": partial(nn.BatchNorm3d, eps=1e-2)}, "blocks.0.norm is BatchNorm3d"),
        ({"head_pool": (1, 2, 2)}, "blocks.5.pool.pool is AvgPool3d"),
    ],
)
def test_a_vanilla_network_with_weights_of_the_same_shapes(options: dict[str, Any], layer: str) -> None:
    torch.manual_seed(0)
    vanilla = trained(create_x3d(expansion="XS", num_classes=3, **options))
    with pytest.raises(UnsupportedModule, match=layer):
        efficient(vanilla)


def test_layers_that_differ_in_training_alone() -> None:
    norm, act = partial(nn.BatchNorm3d, momentum=0.01), partial(nn.ReLU, inplace=True)
    efficient(create_x3d(expansion="XS", num_classes=3, dropout=0.2, norm=norm, activation=act))


def test_another_vanilla_network_is_deployed_through_the_graph() -> None:
    torch.manual_seed(0)
    vanilla = trained(create_x3d(expansion="XS", num_classes=3, stage_temporal_strides=(1, 1, 1, 2))).double()
    x = torch.randn(1, 3, 4, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        got = deployed(vanilla, TensorSpec(*x.shape))(frames_to_batch(x))
        torch.testing.assert_close(got, vanilla(x), rtol=1e-9, atol=1e-10)


def test_a_batch_of_clips_and_the_vanilla_network() -> None:
    torch.manual_seed(0)
    vanilla = trained(create_x3d(expansion="S", num_classes=3)).double()
    x = torch.randn(2, 3, 4, 40, 36, dtype=torch.float64)
    with torch.no_grad():
        expected = vanilla(x)
        for variant in ("shift-add", "one-hot"):
            got = deployed(vanilla, TensorSpec(*x.shape), variant)(frames_to_batch(x))
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


def test_options_of_the_network() -> None:
    x = torch.randn(1, 3, 2, 40, 40)
    features = EfficientX3d(enable_head=False).eval()
    with torch.no_grad():
        assert features(x).shape == (1, 192, 2, 2, 2)
        active = EfficientX3d(num_classes=3, head_act="relu", dropout=0.0).eval()
        assert (active(x) >= 0).all()
        torch.testing.assert_close(active.deployable(x.shape)(x), active(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(features.deployable(x.shape)(x), features(x), rtol=1e-4, atol=1e-5)
    assert not hasattr(active, "dropout")
    with pytest.raises(UnknownName, match="unknown size"):
        EfficientX3d(expansion="XXS")
    with pytest.raises(UnknownName):
        create_x3d(expansion="XL")
    with pytest.raises(UnsupportedModule, match="a stem, x3d blocks and a head"):
        EfficientX3d.of(x3d_blocks()[1:])


@pytest.mark.parametrize(
    ("wrapped", "kind"),
    [(lambda stage: nn.Sequential(stage, nn.Dropout3d(0.1)), "Sequential"), (torch.compile, "OptimizedModule")],
)
def test_a_stage_that_is_no_efficient_block_is_not_left_out(wrapped: Any, kind: str) -> None:
    module, clip = EfficientX3d(num_classes=3).eval(), TensorSpec(1, 3, 4, 32, 32)
    module.s2 = wrapped(module.s2)
    for form in (lambda: deployed(module, clip), lambda: module.to_stream(clip), lambda: module.output(clip)):
        with pytest.raises(UnsupportedModule, match=f"s2: expected an efficient block, got {kind}"):
            form()


def test_vanilla_parts_can_be_exchanged() -> None:
    made = []

    def group_norm(channels: int) -> nn.Module:
        made.append(channels)
        return nn.GroupNorm(2, channels)

    module = create_x3d(num_classes=5, norm=group_norm, activation=nn.GELU, head_pool=(2, 2, 2), dropout=0.0)
    # What is left are the ReLUs inside squeeze-excite.
    assert not [m for m in module.modules() if isinstance(m, nn.BatchNorm3d)]
    assert len(made) == len([m for m in module.modules() if isinstance(m, nn.GroupNorm)])
    assert module(torch.randn(1, 3, 2, 64, 64)).shape == (1, 5)
    with pytest.raises(InvalidValue, match="four stages"):
        create_x3d(stage_kernels=((3, 3, 3),))


def test_a_network_of_a_space() -> None:
    blocks = (
        BlockSpec.parse("stem_i3_o8_k1x3x3+5x1x1_s2_relu"),
        BlockSpec.parse("x3d_i8_m16_o16_k1x3x3+3x1x1_s2_relu"),
        BlockSpec.parse("x3d_i16_m32_o16_k3x3x3_relu"),
        BlockSpec.parse("x3d_i16_m32_o24_k1x3x3_s2_se8_hswish"),
        BlockSpec.parse("head_i24_m48_d32_o6_kglobal_relu"),
    )
    value = Network("small", blocks, TensorSpec(1, 3, 4, 32, 32))
    module = network(value)
    assert [name for name, _ in module.named_children()][:3] == ["s1", "s2", "s3"]
    assert module(torch.randn(2, 3, 4, 32, 32)).shape == (2, 6)
    workload = value.workload(Precision.FP32)
    folded, example = workload_module(workload)
    assert example.shape == value.input.folded
    assert folded(example).shape == (1, 6)
    original, clip = eager_workload(workload.key)
    assert original(clip).shape == (1, 6)


@pytest.mark.parametrize("key", ["x3d_i8_m16_o8_k3x3x3_se8_swish>x3d_i8_m16_o8_k1x3x3_relu@1x8x4x8x8/fp32/auto"])
def test_a_chain(key: str) -> None:
    workload = Workload.parse(key)
    folded, example = workload_module(workload)
    assert folded(example).shape == workload.output.folded


@pytest.mark.parametrize(
    ("input", "corner"), [("1x8x4x6x6", (4, 8, 1, 1)), ("1x8x4x1x6", (4, 8, 1, 1)), ("1x8x4x1x1", (1, 8, 1, 1))]
)
def test_what_is_continued_gives_its_output_and_a_corner_of_it(input: str, corner: tuple[int, ...]) -> None:
    folded, example = workload_module(Workload.parse(f"x3d_i8_m16_o8_k1x3x3_relu@{input}/fp32/auto"))
    with torch.no_grad():
        made, read = Continued(folded)(example)
        assert torch.equal(made, folded(example))
    assert read.shape == corner
    assert torch.equal(read, made[: corner[0], :, :1, :1])


@pytest.mark.parametrize("spec", x3d_blocks("XS")[:7] + x3d_blocks("XS")[-1:])
def test_arithmetic_counts_every_weight(spec: BlockSpec) -> None:
    block = build(spec)
    weights = sum(p.numel() for name, p in block.named_parameters() if p.dim() > 1)
    assert sum(c.num_weights for c in spec.operations(TensorSpec(1, spec.in_channels, 4, 16, 16))) == weights


def test_models_that_cannot_be_deployed_say_so() -> None:
    with pytest.raises(UnsupportedModule, match="the operation has no rule"):
        deployed(nn.LPPool3d(2.0, 2), TensorSpec(1, 3, 4, 8, 8))


def test_a_module_without_a_rewrite_of_its_own_is_deployed_through_its_graph() -> None:
    module, clip = nn.Conv3d(3, 4, 1), torch.randn(1, 3, 4, 8, 8)
    expected = frames_to_batch(module(clip))
    assert torch.allclose(deployed(module, TensorSpec(1, 3, 4, 8, 8))(frames_to_batch(clip)), expected, atol=1e-6)
