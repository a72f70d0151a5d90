"""Published weights of ResNets: names of two code bases, both ways, and what is said where they do not fit."""

from pathlib import Path

import pytest
import torch
from torch import nn

from hwbench.errors import InvalidFile, InvalidValue
from hwbench.models import (
    EfficientX3d,
    ResnetForm,
    network,
    pyslowfast_from_resnet,
    read_published,
    resnet_from_pyslowfast,
    x3d_blocks,
)
from hwbench.spaces import load_card
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.workspace import Workspace, shipped

HEAD = "pool-head_i32_o5_kglobal_identity"
# One network with a pool over frames, which PyTorchVideo counts as a block, one of R(2+1)D, one of two pathways.
CHAINS = {
    "i3d": "resnet-stem_i3_o8_k5x7x7_s2_p2_relu>bottleneck_i8_m4_o16_k3x1x1+1x3x3_relu>"
    "frame-pool_i16_o16_k1x1x1_ts2_identity>bottleneck_i16_m8_o32_k1x1x1+1x3x3_s2_relu>"
    f"bottleneck_i32_m8_o32_k3x1x1+1x3x3_relu>{HEAD}",
    "r2plus1d": f"resnet-stem_i3_o8_k1x7x7_s2_relu>r2plus1d_i8_m4_o32_k3x1x1+1x3x3_s2_relu>{HEAD}",
    "slowfast": "pathway-split_i3_o3_k1x1x1_al4_identity>1:resnet-stem_i3_o8_k1x7x7_s2_p2_relu>"
    "2:resnet-stem_i3_o2_k5x7x7_s2_p2_relu>pathway-fuse_i8_o12_k5x1x1_al4_fc2_relu>"
    "1:bottleneck_i12_m4_o16_k1x1x1+1x3x3_relu>2:bottleneck_i2_m2_o4_k3x1x1+1x3x3_relu>"
    "pathway-head_i16_o5_kglobal_fc4_identity",
}
CLIP = TensorSpec(1, 3, 8, 32, 32)
NETWORKS = {
    name: Network(f"zoo:{name}", tuple(map(BlockSpec.parse, chain.split(">"))), CLIP) for name, chain in CHAINS.items()
}
# Names of PySlowFast, written out from its modules (stem_helper, resnet_helper, head_helper, FuseFastToSlow).
PYSLOWFAST = {
    "i3d": {
        "s1.pathway0_stem.conv.weight": "blocks.0.conv.weight",
        "s1.pathway0_stem.bn.running_var": "blocks.0.norm.running_var",
        "s2.pathway0_res0.branch1.weight": "blocks.1.res_blocks.0.branch1_conv.weight",
        "s2.pathway0_res0.branch1_bn.bias": "blocks.1.res_blocks.0.branch1_norm.bias",
        "s3.pathway0_res1.branch2.a.weight": "blocks.3.res_blocks.1.branch2.conv_a.weight",
        "s3.pathway0_res1.branch2.a_bn.weight": "blocks.3.res_blocks.1.branch2.norm_a.weight",
        "s3.pathway0_res0.branch2.b.weight": "blocks.3.res_blocks.0.branch2.conv_b.weight",
        "s3.pathway0_res0.branch2.b_bn.running_mean": "blocks.3.res_blocks.0.branch2.norm_b.running_mean",
        "s3.pathway0_res1.branch2.c.weight": "blocks.3.res_blocks.1.branch2.conv_c.weight",
        "s3.pathway0_res1.branch2.c_bn.num_batches_tracked": (
            "blocks.3.res_blocks.1.branch2.norm_c.num_batches_tracked"
        ),
        "head.projection.weight": "blocks.4.proj.weight",
        "head.projection.bias": "blocks.4.proj.bias",
    },
    "slowfast": {
        "s1.pathway1_stem.conv.weight": "blocks.0.multipathway_blocks.1.conv.weight",
        "s1.pathway0_stem.bn.weight": "blocks.0.multipathway_blocks.0.norm.weight",
        "s1_fuse.conv_f2s.weight": "blocks.0.multipathway_fusion.conv_fast_to_slow.weight",
        "s1_fuse.bn.bias": "blocks.0.multipathway_fusion.norm.bias",
        "s2.pathway1_res0.branch2.c_bn.weight": "blocks.1.multipathway_blocks.1.res_blocks.0.branch2.norm_c.weight",
        "head.projection.weight": "blocks.3.proj.weight",
    },
}


def trained(name: str) -> nn.Module:
    """A network as after training: every number of a normalisation is one of its own."""
    torch.manual_seed(0)
    module = network(NETWORKS[name])
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.1)
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.bias)
    return module.eval()


def file_of(values: object, path: Path) -> Path:
    torch.save(values, path)
    return path


@pytest.mark.parametrize("name", PYSLOWFAST)
def test_names_go_there_and_back(name: str) -> None:
    weights = trained(name).state_dict()
    there = pyslowfast_from_resnet(weights)
    assert len(there) == len(weights)
    for theirs, ours in PYSLOWFAST[name].items():
        assert torch.equal(there[theirs], weights[ours])
    back = resnet_from_pyslowfast(there, NETWORKS[name])
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[key], value) for key, value in weights.items())
    there["head.projection.weight"].zero_()
    assert back[next(key for key in back if key.endswith("proj.weight"))].any()


def test_names_that_are_none() -> None:
    with pytest.raises(InvalidValue, match=r"conv_b\.conv_t\.weight': no layer of PySlowFast; expected names such as"):
        pyslowfast_from_resnet(trained("r2plus1d").state_dict())
    there = pyslowfast_from_resnet(trained("i3d").state_dict())
    there["s4.pathway0_res0.branch2.a.weight"] = torch.zeros(1)
    with pytest.raises(InvalidValue, match=r"s4\..*\.a\.weight': no weight of zoo:i3d under PySlowFast"):
        resnet_from_pyslowfast(there, NETWORKS["i3d"])


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, ResnetForm.PYTORCHVIDEO) for name in CHAINS] + [(name, ResnetForm.PYSLOWFAST) for name in PYSLOWFAST],
)
@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_file_of_each_form(name: str, form: ResnetForm, prefix: str, tmp_path: Path) -> None:
    module, asked = trained(name), NETWORKS[name]
    weights = module.state_dict()
    values = pyslowfast_from_resnet(weights) if form is ResnetForm.PYSLOWFAST else weights
    path = file_of({"model_state": {prefix + key: value for key, value in values.items()}}, tmp_path / "r50.pyth")
    published = read_published(path)
    assert (published.form, published.num_classes, published.doubts) == (form, 5, ())
    made = network(asked).eval()
    made.load_state_dict(published.of(asked))
    clip = torch.randn(CLIP.shape)
    with torch.no_grad():
        assert torch.equal(made(clip), module(clip))
    headless = published.of(asked.with_classes(3), head=False)
    assert {key.partition(".proj")[1] for key in published.of(asked).keys() - headless.keys()} == {".proj"}


def test_a_file_of_another_model_is_one_line(tmp_path: Path) -> None:
    of_slow = read_published(file_of(trained("i3d").state_dict(), tmp_path / "i3d.pyth"))
    x3d = Network("zoo:x3d-xs", x3d_blocks("XS", 5), CLIP)
    with pytest.raises(InvalidFile) as caught:
        of_slow.of(x3d)
    assert str(caught.value) == (
        f"{tmp_path / 'i3d.pyth'}: weights of another network than zoo:x3d-xs: those of a ResNet (C2D, I3D, Slow, CSN, "
        "R(2+1)D, SlowFast); hwbench zoo list names the networks whose weights are published"
    )
    assert caught.value.exit_status == 2
    of_x3d = read_published(file_of(EfficientX3d(num_classes=5).state_dict(), tmp_path / "x3d.pyth"))
    with pytest.raises(InvalidFile, match="than zoo:i3d: those of an X3D; hwbench zoo list"):
        of_x3d.of(NETWORKS["i3d"])
    with pytest.raises(InvalidFile) as caught:
        of_slow.of(NETWORKS["slowfast"])
    assert str(caught.value) == (
        f"{tmp_path / 'i3d.pyth'}: weights of another network than zoo:slowfast (form resnet, 74 tensors): missing: "
        "blocks.0.multipathway_blocks.0.conv.weight and 56 more; not of this network: blocks.0.conv.weight and 73 "
        "more; hwbench zoo list names the networks whose weights are published"
    )
    # another width is told layer by layer
    wider = NETWORKS["i3d"].with_classes(7)
    with pytest.raises(InvalidFile, match=r"(?s)tensors.\n  other shape: blocks.4.proj.weight: expected .7, 32., got"):
        of_slow.of(wider)


def test_what_no_training_leaves_is_told_by_name(tmp_path: Path) -> None:
    weights = trained("slowfast").state_dict()
    norm = "blocks.1.multipathway_blocks.0.res_blocks.0.branch2.norm_{}"
    weights[norm.format("a") + ".running_var"].fill_(-1)
    weights["blocks.0.multipathway_fusion.norm.weight"].zero_()
    weights[norm.format("c") + ".weight"].zero_()
    published = read_published(file_of(weights, tmp_path / "damaged.pyth"))
    with pytest.raises(InvalidFile) as caught:
        published.of(NETWORKS["slowfast"])
    assert f"negative variance: {norm.format('a')}.running_var" in str(caught.value)
    assert "all zero: blocks.0.multipathway_fusion.norm.weight" in str(caught.value)
    assert published.doubts == (f"all zero, as before training: its branch adds nothing: {norm.format('c')}.weight",)


# R(2+1)D is none: PySlowFast has no names for two convolutions in the place of one.
@pytest.mark.parametrize("name", ["c2d-r50", "i3d-r50", "slow-r50-4x16", "csn-r101", "slowfast-r101-16x8"])
def test_all_names_of_a_card_go_there_and_back(name: str) -> None:
    asked = load_card(Workspace(shipped()), name).network()
    with torch.device("meta"):
        weights = network(asked).state_dict()
    there = pyslowfast_from_resnet(weights)
    assert len(there) == len(weights)
    assert {key: value.shape for key, value in resnet_from_pyslowfast(there, asked).items()} == {
        key: value.shape for key, value in weights.items()
    }


def test_every_card_of_a_resnet_says_where_its_weights_lie() -> None:
    workspace = Workspace(shipped())
    cards = [load_card(workspace, name) for name in workspace.names("zoo")]
    found = [card for card in cards if card.space.family.name in ("resnet", "slowfast", "r2plus1d")]
    assert len(found) >= 7
    for card in found:
        assert card.weights is not None
        assert card.weights.url.startswith("https://dl.fbaipublicfiles.com/pytorchvideo/model_zoo/kinetics/")
