"""Freezing, rates by depth, blocks that are computed twice, and statistics of batch normalisation."""

import copy

import pytest
import torch
from tiny import Tiny
from torch import nn

from hwbench.errors import InvalidValue
from hwbench.models import network
from hwbench.specs import BlockSpec, Network, TensorSpec
from hwbench.training import Recipe
from hwbench.training.batch_norm import precise_statistics
from hwbench.training.parts import blocks_of, freeze, recomputed, train_mode
from hwbench.training.processes import ALONE

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


@pytest.mark.parametrize(("what", "frozen"), [("", 0), ("stem", 1), ("all-but-head", 4), ("2", 2), ("0", 0)])
def test_frozen_blocks_stay_as_they_are(what: str, frozen: int) -> None:
    net, recipe = Tiny(), Recipe(freeze=what)
    freeze(net, recipe)
    train_mode(net, recipe)
    asked = [all(p.requires_grad for p in block.parameters()) for block in blocks_of(net)]
    assert asked == [False] * frozen + [True] * (5 - frozen)
    assert [block.training for block in blocks_of(net)] == asked


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
