"""MViT against PyTorchVideo's, its deploy form against itself, its file as one delegate, its names in two forms."""

import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pytorchvideo.models.hub.vision_transformers import mvit_base_16, mvit_base_16x4, mvit_base_32x3
    from pytorchvideo.models.vision_transformers import create_multiscale_vision_transformers

from torchvision.models.video.mvit import MSBlockConfig, MViT

from hwbench.blocks import build, frames_to_batch
from hwbench.blocks.mvit import TokenPositions
from hwbench.errors import InvalidFile, InvalidValue, UnsupportedModule
from hwbench.latency import macs, operations
from hwbench.models import (
    MvitForm,
    deployed,
    mvit_from_pyslowfast,
    network,
    pyslowfast_from_mvit,
    read_published,
    workload_module,
)
from hwbench.models.mvit import MvitNetwork
from hwbench.models.mvit_weights import separated
from hwbench.runtimes import get
from hwbench.runtimes.runners import check_file, choose_runner
from hwbench.spaces import load_card, load_space
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec, Workload
from hwbench.training.shared_weights import shared_names
from hwbench.workspace import Workspace, shipped

# Card -> PyTorchVideo's network, its parameters, its published multiply-adds.
THEIRS = {
    "mvit-b-16x4": (mvit_base_16x4, 36_610_672, 70.80),
    "mvit-b-32x3": (mvit_base_32x3, 36_611_440, 170.37),
    # 36,521,296 with the 400 classes that PyTorchVideo's function makes unless told otherwise
    "mvit-b-16": (partial(mvit_base_16, head_num_classes=1000), 36_982_696, 7.8),
}
CLIP = TensorSpec(1, 3, 4, 32, 32)
# As PyTorchVideo makes it of the options below: the width of a stage is made by the block before it.
SMALL = {
    "class": (
        "class-token-stem_i3_o8_k3x7x7_s4_ts2_pf2_ps8_identity",
        "class-multiscale_i8_m8_d32_o16_k3x3x3_kv4_gelu",
        "class-multiscale_i16_m16_d64_o16_k3x3x3_s2_nh2_kv2_gelu",
        "class-multiscale_i16_m16_d64_o16_k3x3x3_nh2_kv2_gelu",
        "class-token-head_i16_o5_kglobal_identity",
    ),
    "mean": (
        "token-stem_i3_o8_k3x7x7_s4_ts2_pf2_ps8_identity",
        "multiscale_i8_m8_d32_o16_k3x3x3_kv4_gelu",
        "multiscale_i16_m16_d64_o16_k3x3x3_s2_nh2_kv2_gelu",
        "multiscale_i16_m16_d64_o16_k3x3x3_nh2_kv2_gelu",
        "token-head_i16_o5_kglobal_identity",
    ),
}

# One frame: nothing pools over time.
PICTURES = (
    "class-token-stem_i3_o8_k1x7x7_s4_pf1_ps8_identity",
    *(key.replace("3x3x3", "1x3x3") for key in SMALL["class"][1:]),
)
PICTURE_NETWORK = Network("zoo:pictures", tuple(map(BlockSpec.parse, PICTURES)), CLIP.with_(t=1))


def card(name: str) -> Network:
    return load_card(Workspace(shipped()), name).network()


def small(name: str, x: TensorSpec = CLIP) -> Network:
    return Network("zoo:small", tuple(map(BlockSpec.parse, SMALL[name])), x)


def trained(module: nn.Module) -> nn.Module:
    """As after training: no number of a normalisation, bias or position term is the one it began with."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        if parameter.dim() == 1 or parameter.shape[0] == 1:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return module.eval()


def relative_error(expected: torch.Tensor, got: torch.Tensor) -> float:
    return float((expected - got).abs().max() / expected.abs().max())


@pytest.mark.parametrize("name", THEIRS)
def test_a_card_has_the_published_numbers(name: str) -> None:
    _, parameters, published = THEIRS[name]
    with torch.device("meta"):
        ours = network(card(name))
    assert sum(parameter.numel() for parameter in ours.parameters()) == parameters
    workload = card(name).workload(Precision.FP32)
    assert macs(workload) / 1e9 == pytest.approx(published, rel=0.01)
    assert sum(one.num_weights for one in operations(workload)) == sum(
        p.numel() for p in ours.parameters() if p.dim() > 1
    )


def pyslowfast_of_pictures(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As PySlowFast writes them where tokens are made of pictures."""
    made = pyslowfast_from_mvit(weights)
    return made | {"patch_embed.proj.weight": made["patch_embed.proj.weight"].squeeze(2)}


@pytest.mark.long
@pytest.mark.parametrize("name", THEIRS)
def test_a_card_is_that_of_pytorchvideo_with_the_same_weights(name: str) -> None:
    torch.manual_seed(0)
    theirs, ours = trained(THEIRS[name][0]()), network(card(name)).eval()
    ours.load_state_dict(separated(theirs.state_dict()))
    clip = torch.randn(card(name).input.shape)
    with torch.no_grad():
        assert relative_error(theirs(clip[:, :, 0] if name == "mvit-b-16" else clip), ours(clip)) <= 1e-5


@pytest.mark.parametrize("write", [dict, pyslowfast_of_pictures])
def test_weights_for_pictures_are_those_of_clips_of_one_frame(write, tmp_path: Path) -> None:
    torch.manual_seed(0)
    theirs = create_multiscale_vision_transformers(
        spatial_size=32, temporal_size=1, depth=3, patch_embed_dim=8, embed_dim_mul=[[1, 2.0]],
        atten_head_mul=[[1, 2.0]], pool_q_stride_size=[[1, 1, 2, 2]], pool_kv_stride_adaptive=[1, 4, 4],
        pool_kvq_kernel=[1, 3, 3], head_num_classes=5, use_2d_patch=True, conv_patch_embed_kernel=[7, 7],
        conv_patch_embed_stride=[4, 4], conv_patch_embed_padding=[3, 3],
    )  # fmt: skip
    weights = write(trained(theirs).state_dict())
    assert {value.dim() for name, value in weights.items() if name.startswith("patch_embed")} == {1, 4}
    torch.save({"model_state": weights}, tmp_path / "mvit.pyth")
    ours = network(PICTURE_NETWORK).eval()
    ours.load_state_dict(read_published(tmp_path / "mvit.pyth").of(PICTURE_NETWORK))
    clip = torch.randn(2, 3, 1, 32, 32)
    with torch.no_grad():
        assert relative_error(theirs(clip[:, :, 0]), ours(clip)) <= 1e-5


@pytest.mark.parametrize("name", SMALL)
def test_a_small_one_is_that_of_pytorchvideo_with_the_same_weights(name: str) -> None:
    torch.manual_seed(0)
    theirs = create_multiscale_vision_transformers(
        spatial_size=32, temporal_size=4, depth=3, patch_embed_dim=8, embed_dim_mul=[[1, 2.0]],
        atten_head_mul=[[1, 2.0]], pool_q_stride_size=[[1, 1, 2, 2]], pool_kv_stride_adaptive=[1, 4, 4],
        pool_kvq_kernel=[3, 3, 3], head_num_classes=5, cls_embed_on=name == "class",
    )  # fmt: skip
    trained(theirs)
    ours = network(small(name)).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    clip = torch.randn(2, 3, 4, 32, 32)
    with torch.no_grad():
        assert relative_error(theirs(clip), ours(clip)) <= 1e-5
    ours.train()
    ours(clip).sum().backward()
    assert all(parameter.grad is not None for parameter in ours.parameters())


@pytest.mark.parametrize("x", [pytest.param(CLIP, marks=pytest.mark.long), TensorSpec(2, 3, 3, 37, 30)], ids=str)
def test_the_deploy_form_computes_the_same(x: TensorSpec) -> None:
    blocks = (*small("class").blocks[:3], BlockSpec.parse(SECOND[2].replace("rs4", "rs5")), BlockSpec.parse(SECOND[-1]))
    torch.manual_seed(0)
    module = trained(network(Network("zoo:both", blocks, x), dropout=0.1)).double()
    clip = torch.randn(x.shape, dtype=torch.float64)
    with torch.no_grad():
        expected, got = module(clip), deployed(module, x)(frames_to_batch(clip))
    assert torch.allclose(got, expected, rtol=1e-10, atol=1e-10)


# Blocks of the second version: wider attention, pooled queries added to it, relative positions.
SECOND = (
    "class-token-stem_i3_o16_k3x7x7_s4_ts2_identity",
    "class-multiscale_i16_m16_d64_o16_k3x3x3_kv4_rq1_rf2_rs8_gelu",
    "class-multiscale_i16_m32_d128_o32_k3x3x3_s2_nh2_kv2_rq1_rf2_rs4_gelu",
    "class-multiscale_i32_m32_d128_o32_k3x3x3_nh2_kv2_rq1_rf2_rs4_gelu",
    "class-token-head_i32_o5_kglobal_identity",
)
# Layers of a block in torchvision and here.
LAYERS = {
    "mlp.0": "mlp.fc1",
    "mlp.3": "mlp.fc2",
    "attn.project.0": "attn.proj",
    "project": "proj",
    **{f"attn.pool_{one}.pool": f"attn.pool_{one}" for one in "qkv"},
    **{f"attn.pool_{one}.norm_act.0": f"attn.norm_{one}" for one in "qkv"},
}


def from_torchvision(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights of torchvision's second version under the names of a network here."""
    around = {
        "conv_proj": "patch_embed.patch_model", "pos_encoding.class_token": "cls_positional_encoding.cls_token",
        "norm": "norm_embed", "head.1": "head.proj",
    }  # fmt: skip
    made = {}
    for name, value in weights.items():
        layer, _, kind = name.rpartition(".")
        if name in around:
            made[around[name]] = value.reshape(1, 1, -1)
        elif layer in around:
            made[f"{around[layer]}.{kind}"] = value
        else:
            block, inner = layer.split(".", 2)[:2], layer.split(".", 2)[2]
            inner = LAYERS.get(inner, f"{inner}.relative" if kind.startswith("rel_pos") else inner)
            made[".".join([*block, inner, kind])] = value
    joined = {name: made.pop(name) for name in [*made] if ".qkv." in name}
    for name, value in joined.items():
        made |= {name.replace("qkv", one): part for one, part in zip("qkv", value.chunk(3))}
    return made


def test_the_second_version_is_that_of_torchvision_with_the_same_weights() -> None:
    kernels = [[3, 3, 3], [3, 3, 3]]
    settings = [
        MSBlockConfig(1, 16, 16, *kernels, [1, 1, 1], [1, 4, 4]),
        MSBlockConfig(2, 16, 32, *kernels, [1, 2, 2], [1, 2, 2]),
        MSBlockConfig(2, 32, 32, *kernels, [1, 1, 1], [1, 2, 2]),
    ]
    torch.manual_seed(0)
    theirs = MViT(
        spatial_size=(32, 32), temporal_size=4, block_setting=settings, residual_pool=True, rel_pos_embed=True,
        residual_with_cls_embed=False, proj_after_attn=True, num_classes=5,
    )  # fmt: skip
    for name, parameter in trained(theirs).named_parameters():
        if "rel_pos" in name:
            parameter.data *= 20
    ours = network(Network("zoo:second", tuple(map(BlockSpec.parse, SECOND)), CLIP)).eval()
    weights = from_torchvision(theirs.state_dict())
    weights["cls_positional_encoding.pos_embed_class"] = torch.zeros(1, 1, 16)
    ours.load_state_dict(weights)
    for layer in ours.modules():  # torchvision has one eps for all, PyTorchVideo another for pooled heads
        if isinstance(layer, nn.LayerNorm):
            layer.eps = 1e-6
    clip = torch.randn(2, 3, 4, 32, 32)
    with torch.no_grad():
        expected = theirs(clip)
        assert relative_error(expected, ours(clip)) <= 1e-5
        ours.blocks[1].attn.relative = None  # the terms count
        assert relative_error(expected, ours(clip)) > 1e-3


def test_a_row_with_a_class_token_has_two_inputs() -> None:
    parts = [part.key for part in small("class").workload(Precision.FP32).parts()]
    assert parts[1] == "class-multiscale_i8_m8_d32_o16_k3x3x3_kv4_gelu@1x8x2x8x8+1x8x1x1x1/fp32/auto"
    assert parts[-1] == "class-token-head_i16_o5_kglobal_identity@1x16x2x4x4+1x16x1x1x1/fp32/auto"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("multiscale_i8_m9_d16_o9_k3x3x3_nh2_gelu", "channels inside that its heads divide"),
        ("multiscale_i8_m8_o8_k3x3x3_gelu", "channels between its linear layers"),
        ("multiscale_i8_m16_d16_o8_k3x3x3_gelu", None),
        ("multiscale_i8_m8_d16_o8_k3x3x3_s3_gelu", "a stride of 1, or an even one"),
        ("multiscale_i8_m12_d16_o16_k3x3x3_gelu", "channels inside to be those in, or those out"),
        ("token-stem_i3_o8_k3x7x7_s4_pf2_identity", "both pf and ps"),
        ("token-stem_i3_o8_k3x7x7_s4_relu", "one kernel and no activation"),
    ],
)
def test_what_is_no_block_says_why(key: str, reason: str | None) -> None:
    spec = BlockSpec.parse(key)
    with pytest.raises(UnsupportedModule, match=reason or "channels inside"):
        build(spec)


def test_position_terms_of_another_grid_are_interpolated() -> None:
    terms = TokenPositions(4, (2, 3), with_class=False)
    nn.init.ones_(terms.pos_embed_temporal)
    with torch.no_grad():
        terms.pos_embed_spatial.copy_(torch.arange(9.0).reshape(1, 9, 1).expand(1, 9, 4))
        own, larger = terms(torch.zeros(1, 4, 2, 3, 3)), terms(torch.zeros(1, 4, 4, 6, 6))
    assert torch.equal(own[0, 0, 0], 1 + torch.arange(9.0).reshape(3, 3))
    assert own.mean() == pytest.approx(float(larger.mean()), abs=1e-6)
    assert (larger.max(), larger.min()) == (own.max(), own.min())


def test_a_supernet_shares_blocks_by_stage() -> None:
    space = load_space(Workspace(shipped()), "mvit-mobile")
    made = {}
    for depth in ("1", "2"):
        choices = {name: values[0] for name, values in space.choices.items()} | {"s1.depth": depth}
        architecture = space.of_params(choices)
        with torch.device("meta"):
            module = network(space.network(architecture, 5))
        made[depth] = shared_names(module, space, architecture)
    assert made["1"]["blocks.1.norm1.weight"] == made["2"]["blocks.2.norm1.weight"] == "stage1.0.norm1.weight"
    assert made["2"]["blocks.1.norm1.weight"] == "stage0.1.norm1.weight"
    assert made["1"]["patch_embed.patch_model.bias"] == "patch_embed.patch_model.bias"


def test_names_go_there_and_back() -> None:
    weights = trained(network(small("class"))).state_dict()
    there = pyslowfast_from_mvit(weights)
    for theirs, ours in {
        "patch_embed.proj.weight": "patch_embed.patch_model.weight",
        "cls_token": "cls_positional_encoding.cls_token",
        "pos_embed_temporal": "cls_positional_encoding.pos_embed_temporal",
        "blocks.1.attn.pool_q.weight": "blocks.1.attn.pool_q.weight",
        "norm.bias": "norm_embed.bias",
        "head.projection.weight": "head.proj.weight",
    }.items():
        assert torch.equal(there[theirs], weights[ours])
    back = mvit_from_pyslowfast(there)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], value) for name, value in weights.items())
    with pytest.raises(InvalidValue, match=r"'fc\.weight': no weight of an MViT under PySlowFast's names"):
        mvit_from_pyslowfast({**there, "fc.weight": torch.zeros(1)})


def doubled(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As newer PyTorchVideo writes them: what pools has two names."""
    made = dict(weights)
    for name, value in weights.items():
        for part in ("pool", "norm"):
            for one in "qkv":
                if f".attn.{part}_{one}." in name:
                    made[name.replace(f"{part}_{one}", f"_attention_pool_{one}.{part}")] = value
    return made


def joined(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As PySlowFast may write them: one layer for queries, keys and values."""
    made = pyslowfast_from_mvit(weights)
    for number in range(3):
        for kind in ("weight", "bias"):
            parts = [made.pop(f"blocks.{number}.attn.{one}.{kind}") for one in "qkv"]
            made[f"blocks.{number}.attn.qkv.{kind}"] = torch.cat(parts)
    return made


@pytest.mark.parametrize(
    ("write", "form"),
    [
        (dict, MvitForm.PYTORCHVIDEO),
        (doubled, MvitForm.PYTORCHVIDEO),
        (pyslowfast_from_mvit, MvitForm.PYSLOWFAST),
        (joined, MvitForm.PYSLOWFAST),
    ],
)
def test_a_file_of_each_form(write, form: MvitForm, tmp_path: Path) -> None:
    module = trained(network(small("class")))
    path = tmp_path / "mvit.pyth"
    torch.save({"model_state": {f"module.{name}": v for name, v in write(module.state_dict()).items()}}, path)
    published = read_published(path)
    assert (published.form, published.num_classes, published.doubts) == (form, 5, ())
    ours = network(small("class")).eval()
    ours.load_state_dict(published.of(small("class")))
    clip = torch.randn(CLIP.shape)
    with torch.no_grad():
        assert torch.equal(ours(clip), module(clip))
    headless = published.of(small("class").with_classes(3), head=False)
    assert published.of(small("class")).keys() - headless.keys() == {"head.proj.weight", "head.proj.bias"}


def test_a_file_that_does_not_fit_is_told(tmp_path: Path) -> None:
    weights = trained(network(small("class"))).state_dict()
    weights["blocks.1.norm1.weight"].zero_()
    torch.save(weights, tmp_path / "mvit.pyth")
    published = read_published(tmp_path / "mvit.pyth")
    with pytest.raises(InvalidFile, match=r"all zero: blocks\.1\.norm1\.weight"):
        published.of(small("class"))
    with pytest.raises(InvalidFile, match="another network than zoo:x3d-xs: those of an MViT; hwbench zoo list"):
        published.of(card("x3d-xs"))
    with pytest.raises(InvalidFile, match="weights of another network than zoo:small"):
        published.of(small("mean"))


def test_other_blocks_make_no_mvit() -> None:
    blocks = small("class").blocks
    for wrong in (blocks[1:], blocks[:-1], (*blocks[:2], BlockSpec.parse(SMALL["mean"][-1]))):
        with pytest.raises(UnsupportedModule, match="expected a token-stem, multiscale blocks and a token-head"):
            MvitNetwork(wrong)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("made", [*map(small, SMALL), PICTURE_NETWORK], ids=[*SMALL, "pictures"])
def test_a_file_is_one_delegate_and_runs(made: Network, precision: str, tmp_path: Path, runner_cache: Path) -> None:
    one = Workload(made.blocks, made.input, Precision(precision))
    torch.manual_seed(0)
    module = deployed(trained(network(made)), made.input)
    example, *clips = (frames_to_batch(torch.randn(made.input.shape)) for _ in range(5))
    out = tmp_path / "mvit.pte"
    report = get("executorch").build(module, (example,), one, out, clips if precision == "int8" else []).delegation
    assert (report.delegates, dict(report.undelegated)) == (1, {})
    file = check_file(out, example.contiguous().numpy(), runner=choose_runner("executorch", runner_cache, None))
    with torch.no_grad():
        error = relative_error(module(example), torch.from_numpy(file.output.copy()))
    assert error < (1e-4 if precision == "fp32" else 0.1)


@pytest.mark.long
def test_a_block_in_half_precision_is_one_delegate_and_runs(tmp_path: Path) -> None:
    """Its normalisations and its activation are computed in fp32: XNNPACK has no other form of them."""
    one = Workload.parse("multiscale_i8_m8_d16_o8_k3x3x3_kv2_gelu@1x8x2x4x4/fp16/auto")
    torch.manual_seed(0)
    module, example = workload_module(one)
    report = get("executorch").build(module, (example,), one, tmp_path / "block.pte", []).delegation
    assert (report.delegates, dict(report.undelegated)) == (1, {})
    file = check_file(tmp_path / "block.pte", example.contiguous().numpy())
    with torch.no_grad():
        assert relative_error(module(example), torch.from_numpy(file.output.copy())) < 3e-3
