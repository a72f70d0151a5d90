"""Stem and head of X3D."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock, efficient_part
from hwbench.blocks.mobile_cpu.activations import Activation, efficient_act
from hwbench.blocks.mobile_cpu.convolutions import Conv3d5x1x1BnAct, Conv3dPwBnAct, Conv3dTemporalKernel1BnAct
from hwbench.blocks.mobile_cpu.fully_connected import FullyConnected
from hwbench.blocks.mobile_cpu.pool import AdaptiveAvgPool3dOutSize1
from hwbench.blocks.streaming import Framewise, StreamChain, StreamStep
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, TensorSpec


class Chain(EfficientBlock):
    """Blocks one after the other."""

    def __init__(self, blocks: Iterable[EfficientBlock] | Mapping[str, EfficientBlock]) -> None:
        super().__init__()
        named = blocks if isinstance(blocks, Mapping) else {f"block_{i}": b for i, b in enumerate(blocks)}
        for name, block in named.items():
            self.add_module(name, block)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.children():
            x = block(x)
        return x

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for name, block in self._blocks():
            layers[name] = block.to_deploy(input, variant)
            input = block.output(input)
        return nn.Sequential(layers).eval()

    def to_stream(self, input: TensorSpec) -> StreamStep:
        steps: OrderedDict[str, StreamStep] = OrderedDict()
        for name, block in self._blocks():
            steps[name] = block.to_stream(input)
            input = block.output(input)
        return StreamChain(steps)

    def output(self, x: TensorSpec) -> TensorSpec:
        for _, block in self._blocks():
            x = block.output(x)
        return x

    def _blocks(self) -> Iterable[tuple[str, EfficientBlock]]:
        for name, block in self.named_children():
            yield name, efficient_part(name, block)


class X3dStem(Chain):
    """1 x 3 x 3 with stride 2 and no activation, then 5 x 1 x 1 depthwise with normalisation and ReLU.

    Without ``over_time`` the first has normalisation and ReLU, and there is no second: the stem of E3D.
    """

    def __init__(self, in_channels: int = 3, out_channels: int = 24, *, over_time: bool = True) -> None:
        spatial = Conv3dTemporalKernel1BnAct(
            in_channels, out_channels, spatial_kernel=3, spatial_stride=2, spatial_padding=1,
            activation="identity" if over_time else "relu", use_bn=not over_time,
        )  # fmt: skip
        layers: dict[str, EfficientBlock] = {"pathway0_stem_conv_xy": spatial}
        if over_time:
            layers["pathway0_stem_conv"] = Conv3d5x1x1BnAct(out_channels, out_channels, groups=out_channels)
        super().__init__(layers)


class X3dHeadPool(Chain):
    """Pointwise to ``mid_channels``, the mean of the clip, pointwise to ``hidden_channels``: (N, hidden, 1, 1, 1).

    The activation of the first is ReLU; that of the last, and whether it has a bias, are arguments.
    """

    def __init__(
        self, in_channels: int = 192, mid_channels: int = 432, hidden_channels: int = 2048, *,
        hidden_activation: str = "relu", hidden_bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            {
                "conv_5": Conv3dPwBnAct(in_channels, mid_channels),
                "avg_pool": AdaptiveAvgPool3dOutSize1(),
                "lin_5": Conv3dPwBnAct(
                    mid_channels, hidden_channels, bias=hidden_bias, activation=hidden_activation, use_bn=False
                ),
            }
        )


class X3dHead(EfficientBlock):
    """From features to logits (N, classes)."""

    def __init__(
        self, in_channels: int, mid_channels: int, hidden_channels: int, num_classes: int, dropout: float = 0.0, *,
        hidden_activation: str = "relu", hidden_bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.head = X3dHeadPool(
            in_channels, mid_channels, hidden_channels, hidden_activation=hidden_activation, hidden_bias=hidden_bias
        )
        self.dropout = nn.Dropout(dropout)
        self.projection = FullyConnected(hidden_channels, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.head(x).flatten(1)
        return self.projection(self.dropout(x))  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        return FoldedHead(self.head.to_deploy(input, variant), self.projection).eval()

    def to_stream(self, input: TensorSpec) -> StreamStep:
        return stream_head(self.head.to_stream(input), self.projection)

    def output(self, x: TensorSpec) -> TensorSpec:
        return TensorSpec(x.n, last_linear(self.projection).out_features, 1, 1, 1)


class FoldedHead(nn.Module):
    """The deploy form: folded (N·T, C, H, W) -> (N, classes); the last layer is a 1 x 1 convolution."""

    def __init__(self, pool: nn.Module, projection: FullyConnected, act: Activation | None = None) -> None:
        super().__init__()
        linear = last_linear(projection)
        self.pool = pool
        self.projection = nn.Conv2d(linear.in_features, linear.out_features, 1, device="meta")
        weight = linear.weight.detach().clone().reshape(*linear.weight.shape, 1, 1)
        self.projection.weight = nn.Parameter(weight, requires_grad=False)
        self.projection.bias = (
            None if linear.bias is None else nn.Parameter(linear.bias.detach().clone(), requires_grad=False)
        )
        self.act = nn.Identity() if act is None else efficient_act("act", act).to_deploy()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.projection(self.pool(x)).flatten(1))  # type: ignore[no-any-return]


def stream_head(pool: StreamStep, projection: FullyConnected, act: Activation | None = None) -> StreamStep:
    """The step of a head: pooling that remembers, then the last layer."""
    return StreamChain({"pool": pool, "projection": Framewise(FoldedHead(nn.Identity(), projection, act).eval())})


def last_linear(projection: nn.Module) -> nn.Linear:
    """The linear layer of a projection, which may be one itself.

    Raises:
        UnsupportedModule: There is none.
    """
    linear = projection.model if isinstance(projection, FullyConnected) else projection
    if type(linear) is not nn.Linear:
        raise UnsupportedModule(f"projection: expected a linear layer, got {type(linear).__name__}")
    return linear
