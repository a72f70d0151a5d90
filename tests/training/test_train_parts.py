"""Freezing, rates by depth, blocks that are computed twice, and statistics of batch normalisation."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import Tiny
from torch import nn

from hwbench.blocks import zero_final_norms
from hwbench.blocks.authors import is_ours
from hwbench.blocks.mobile_cpu import Chain, Conv3dPwBnAct, SqueezeExcitation, X3dBottleneckBlock
from hwbench.blocks.mobile_cpu.residual import ResidualBlock
from hwbench.data import TestClips, TrainingClips
from hwbench.errors import InvalidValue
from hwbench.models import create_x3d, network
from hwbench.spaces import load_space
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.training import Recipe, Resources, StartingWeights, fit
from hwbench.training.batch_norm import precise_statistics
from hwbench.training.parts import blocks_of, freeze, recomputed, sorted_blocks, train_mode
from hwbench.training.processes import ALONE
from hwbench.training.run import initial
from hwbench.training.state import Resume, TrainState
from hwbench.workspace import Workspace, shipped

NETWORK = Network(
    "chain",
    tuple(
        BlockSpec.parse(key)
        for key in (
            "stem_i3_o8_k1x3x3+5x1x1_s2_relu",
            "x3d_i8_m16_o8_k3x3x3_s2_swish",
            "head_i8_m16_d32_o3_kglobal_relu",
        )
    ),
    TensorSpec(1, 3, 4, 32, 32),
)


def test_blocks_are_the_parts_that_have_weights() -> None:
    net = Tiny()
    assert [type(block).__name__ for block in blocks_of(net)] == [
        "Conv3d", "BatchNorm3d", "Conv3d", "BatchNorm3d", "Linear",
    ]  # fmt: skip
    x3d = network(NETWORK)
    assert len(blocks_of(x3d)) == 4  # the last layer of an X3D is one of its own
    assert {id(p) for block in blocks_of(x3d) for p in block.parameters()} == {id(p) for p in x3d.parameters()}


SPACES = sorted(path.stem for path in (shipped() / "search_spaces").glob("*.toml"))


def shipped_network(space: str, most_frames: int = 64, most_side: int = 1024) -> Network:
    """A network of a shipped space, for clips of at most so many frames and rows."""
    opened, rng = load_space(Workspace(shipped()), space), np.random.default_rng(0)
    drawn = (opened.network(opened.random(rng), 5) for _ in range(1000))
    return next(one for one in drawn if one.input.t <= most_frames and one.input.h <= most_side)


@pytest.mark.parametrize("space", SPACES)
def test_no_block_of_a_shipped_network_is_nearly_all_of_it(space: str) -> None:
    with torch.device("meta"):
        net = network(shipped_network(space))
    assert is_ours(net)
    sizes = [sum(p.numel() for p in block.parameters()) for block in blocks_of(net)]
    assert len(sizes) > 4
    assert sum(sizes) == sum(p.numel() for p in net.parameters())
    assert max(sizes) < 0.9 * sum(sizes)


def saved_bytes(net: nn.Module, x: torch.Tensor) -> int:
    """Bytes of the tensors that a forward pass keeps for the backward pass, each counted once."""
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor  # a tensor that lives on has an address of its own
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        made = net(x)
    del made
    return sum(tensor.numel() * tensor.element_size() for tensor in kept.values())


@pytest.mark.parametrize("space", ["x3d-tiny", "slow-mobile", "slowfast-mobile", "mvit-mobile", "squeeze-mobile"])
def test_blocks_that_are_computed_twice_keep_less(space: str) -> None:
    described = shipped_network(space, 16, 128)
    net, x = network(described).train(), torch.randn(2, *described.input.shape[1:])
    plain = saved_bytes(net, x)
    with recomputed(net):
        assert saved_bytes(net, x) < 0.6 * plain


def test_lists_are_opened_down_to_modules_that_are_called() -> None:
    inner = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    net = nn.ModuleDict({"stem": nn.Linear(2, 2), "body": nn.ModuleList([inner, nn.ReLU()]), "head": nn.Linear(2, 2)})
    assert blocks_of(net) == [net["stem"], *inner, net["head"]]


def test_a_run_whose_blocks_were_others_is_not_gone_on_with(tmp_path: Path) -> None:
    """As a run of MViT of before its blocks were told apart: the optimizer has other weights in the same places."""
    for optimizer in ("muon", "sgd", "adamw"):
        first = TrainState(Tiny(), Recipe(optimizer=optimizer, freeze="2"))
        first.module(torch.randn(2, 3, 4, 16, 16)).square().sum().backward()
        first.optimizer.step()
        resume = Resume(tmp_path, {})
        resume.save(first)
        assert resume.load(TrainState(Tiny(), Recipe(optimizer=optimizer, freeze="2")))
        with pytest.raises(InvalidValue, match=r"resume\.pt: belongs to .*other blocks .*--fresh"):
            resume.load(TrainState(Tiny(), Recipe(optimizer=optimizer, freeze="0")))


@pytest.mark.parametrize(("what", "frozen"), [("", 0), ("stem", 1), ("all-but-head", 4), ("2", 2), ("0", 0)])
def test_frozen_blocks_stay_as_they_are(what: str, frozen: int) -> None:
    net, recipe = Tiny(), Recipe(freeze=what)
    freeze(net, recipe)
    train_mode(net, recipe)
    asked = [all(p.requires_grad for p in block.parameters()) for block in blocks_of(net)]
    assert asked == [False] * frozen + [True] * (5 - frozen)
    assert [block.training for block in blocks_of(net)] == asked


class HeadFirst(nn.Module):
    """Its last layer is made first; a scale behind that is no head."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.scale = nn.Linear(4, 8), nn.PReLU()
        self.late, self.early = nn.Conv3d(4, 4, 1), nn.Conv3d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(self.fc(self.late(self.early(x)).mean((2, 3, 4))))


class Named(nn.Module):
    """A list names parts that it has as attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(3, 4, 1), nn.BatchNorm3d(4))
        self.head = nn.Sequential(nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 8))
        self.blocks = nn.ModuleList([self.stem, self.head])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def test_blocks_are_in_the_order_in_which_a_clip_passes_them() -> None:
    net, clip = HeadFirst().train(), torch.zeros(1, 3, 2, 4, 4)
    net.late.eval()
    assert blocks_of(net) == [net.fc, net.scale, net.late, net.early]
    with sorted_blocks(net, clip):
        assert blocks_of(net) == [net.early, net.late, net.scale, net.fc]
        freeze(net, Recipe(freeze="all-but-head"))
        assert [name for name, weight in net.named_parameters() if weight.requires_grad] == ["fc.weight", "fc.bias"]
    assert blocks_of(net) == [net.fc, net.scale, net.late, net.early]
    assert [part.training for part in (net, net.fc, net.late)] == [True, True, False]
    with sorted_blocks(net, clip[:, :1]):  # which it does not take
        assert blocks_of(net) == [net.fc, net.scale, net.late, net.early]


def test_the_head_that_is_made_first_is_trained_and_the_rest_stays(clips: tuple[TrainingClips, TestClips]) -> None:
    torch.manual_seed(7)
    module, recipe = HeadFirst(), Recipe(epochs=1, batch_size=8, freeze="all-but-head")
    before = copy.deepcopy(module.state_dict())
    fit(module, *clips, recipe, resources=Resources("cpu", threads=1))
    moved = {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"fc.weight", "fc.bias"}


def test_a_block_of_several_names_counts_once() -> None:
    net = Named().train()
    assert blocks_of(net) == [*list(net.stem), net.head[2]]
    net.extra = nn.Sequential(nn.Sequential(net.stem), net.head)
    assert blocks_of(net) == [*list(net.stem), net.head[2]]
    with recomputed(net):
        net(torch.randn(2, 3, 2, 4, 4)).sum().backward()
    assert not [part for part in net.modules() if "forward" in vars(part)]
    freeze(net, Recipe(freeze="all-but-head"))
    assert [weight.requires_grad for weight in net.parameters()] == [False] * 4 + [True] * 2
    net.head.requires_grad_(False)
    with pytest.raises(InvalidValue, match=r"freeze: no weight is left to train: .* 2 frozen blocks .*; freeze fewer"):
        freeze(net, Recipe(freeze="all-but-head"))


def test_a_network_cannot_be_frozen_whole() -> None:
    with pytest.raises(InvalidValue, match="has 5 blocks, at most 4"):
        freeze(Tiny(), Recipe(freeze="5"))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_blocks_that_are_computed_twice_give_the_same_gradients_and_statistics(momentum: float | None) -> None:
    nets = [Tiny().train(), Tiny().train()]
    for net in nets:
        net.layers[1].momentum = momentum
    x = torch.randn(3, 3, 4, 16, 16)
    for net, twice in zip(nets, (False, True), strict=True):
        torch.manual_seed(3)
        if twice:
            with recomputed(net):
                for _ in range(2):
                    net(x).square().sum().backward()
        else:
            for _ in range(2):
                net(x).square().sum().backward()
    for one, two in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)
    for one, two in zip(nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True):
        assert torch.equal(one, two)
    assert "forward" not in vars(nets[1].layers[0])


def test_precise_statistics_are_means_over_the_batches() -> None:
    net = Tiny().eval()
    batches = [torch.randn(4, 3, 4, 16, 16) + i for i in range(3)]
    wanted = torch.stack([net.layers[0](x).mean((0, 2, 3, 4)) for x in batches]).mean(0)
    weights = copy.deepcopy(net.state_dict())
    values = precise_statistics(net, batches, [net.layers[4]], ALONE)
    assert set(values) == {"layers.1.running_mean", "layers.1.running_var"}
    torch.testing.assert_close(values["layers.1.running_mean"], wanted)
    assert not any(layer.training for layer in net.modules())
    assert net.layers[1].momentum == 0.1
    assert torch.equal(weights["layers.4.running_mean"], net.layers[4].running_mean)
    assert isinstance(net.layers[1], nn.BatchNorm3d)


CHAINS = {
    "x3d": "stem_i3_o8_k1x3x3+5x1x1_s2_relu>x3d_i8_m16_o8_k3x3x3_s2_swish>x3d_i8_m16_o8_k3x3x3_swish>"
    "head_i8_m16_d32_o3_kglobal_relu",
    "r2plus1d": "resnet-stem_i3_o8_k1x7x7_s2_relu>r2plus1d_i8_m4_o8_k3x1x1+1x3x3_relu>"
    "r2plus1d_i8_m4_o16_k3x1x1+1x3x3_s2_relu>pool-head_i16_o3_kglobal_identity",
}


def zero_gammas(module: nn.Module) -> set[str]:
    return {
        name for name, layer in module.named_modules() if isinstance(layer, nn.BatchNorm3d) and not layer.weight.any()
    }


@pytest.mark.parametrize(
    ("chain", "names"),
    [
        ("x3d", {"s2.pathway0_res0.layers.conv_2.kernel.bn", "s2.pathway0_res1.layers.conv_2.kernel.bn"}),
        ("r2plus1d", {"blocks.1.res_blocks.0.branch2.norm_c", "blocks.2.res_blocks.0.branch2.norm_c"}),
    ],
)
def test_the_last_gamma_of_each_branch_begins_at_zero(chain: str, names: set[str]) -> None:
    net = Network(chain, tuple(BlockSpec.parse(key) for key in CHAINS[chain].split(">")), TensorSpec(1, 3, 4, 32, 32))
    plain, zeroed = initial(net, Recipe()), initial(net, Recipe(zero_init_final_bn=True))
    assert zero_gammas(plain) == set()
    assert zero_gammas(zeroed) == names
    differ = {name for name, tensor in plain.state_dict().items() if not torch.equal(tensor, zeroed.state_dict()[name])}
    assert differ == {f"{name}.weight" for name in names}
    # weights that a run begins with are not touched, and neither is what they leave out
    start = StartingWeights({name: tensor for name, tensor in plain.state_dict().items() if "norm_c" not in name}, "")
    assert zero_gammas(initial(net, Recipe(zero_init_final_bn=True), start)) == set()


def test_a_block_with_a_gamma_of_zero_is_its_shortcut_and_learns() -> None:
    block = X3dBottleneckBlock(8, 16, 8)
    assert zero_final_norms(nn.ModuleList([block])) == 1
    x = torch.randn(2, 8, 4, 8, 8)
    y = block(x)
    assert torch.equal(y, x.relu())
    y.sum().backward()
    assert block.final_norm.weight.grad.any()  # type: ignore[union-attr]


class Foreign(nn.Module):
    """Has a layer of the name, and is no block of hwbench."""

    def __init__(self) -> None:
        super().__init__()
        self.final_norm, self.norm_c = nn.BatchNorm3d(3), nn.BatchNorm3d(3)


def test_only_branches_of_our_blocks_have_a_last_norm() -> None:
    conv = Conv3dPwBnAct(8, 8, activation="identity")
    chained = ResidualBlock(Chain([Conv3dPwBnAct(8, 8), conv]))
    assert chained.final_norm is conv.kernel.get_submodule("bn")
    assert zero_gammas(ResidualBlock(conv)) == set()
    blocks = (
        X3dBottleneckBlock(8, 16, 8, use_residual=False),
        X3dBottleneckBlock(8, 16, 8, use_bn=(True, True, False)),
        ResidualBlock(SqueezeExcitation(8, 8)),
    )
    net = nn.Sequential(Foreign(), *blocks)
    assert zero_final_norms(net) == 0
    assert zero_gammas(net) == set()
    vanilla = create_x3d(num_classes=3, depth_factor=1.0)
    assert zero_final_norms(vanilla) == 11
    assert {name.rpartition(".")[2] for name in zero_gammas(vanilla)} == {"norm_c"}
