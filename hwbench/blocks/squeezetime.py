"""Stem and bottleneck of SqueezeTime: pictures, where other networks have clips.

The original form takes and gives (N, C, T, H, W), where each of the T is a picture on its own. The deploy form is exact
and has only what XNNPACK takes: normalisations are folded, also the one behind both branches, into the last convolution
of each; the map of positions is interpolated when the form is made, and costs one sum and a change of its layout.

Source: "No Time to Waste: Squeeze Time into Channel for Mobile Video Understanding", Zhai et al. 2024 (arXiv
2405.08344), section 3.
"""

from __future__ import annotations

import abc

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights

from hwbench.blocks.base import Residual
from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.graph.convolution import conv2d
from hwbench.blocks.layout import batch_to_frames, frames_to_batch
from hwbench.blocks.mobile_cpu.activations import Activation, activation
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, BlockSpec, Kernel, TensorSpec
from hwbench.specs.kinds.squeezetime import INTERACTION, POSITION, SQUEEZED_FRAMES
from hwbench.specs.operations import POINT, Size

Folded = tuple[torch.Tensor, torch.Tensor | None]


class PictureModule(nn.Module, abc.ABC):
    """What works on every picture of a clip on its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, T, H, W) -> the same with other channels, rows and columns."""
        return batch_to_frames(self.pictures(frames_to_batch(x)), x.shape[2])

    @abc.abstractmethod
    def pictures(self, x: torch.Tensor) -> torch.Tensor:
        """(N·T, C, H, W) -> the same with other channels, rows and columns."""

    @abc.abstractmethod
    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """The deploy form for inputs of shape ``input``, folded in and out."""


class SqueezeStem(nn.Module):
    """Frames as channels, a convolution, normalisation, activation, and a maximum where ``pool`` is more than 1.

    Of T frames each ``squeezed_frames`` become one picture; the channels of the convolution are those of the first
    frame, then those of the second, and so on. Of clips with fewer frames that is the first part of the weights, which
    is what the networks of a supernet share. In memory it is what folded frames are already: nothing moves.
    """

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        self.squeezed_frames = spec.number(SQUEEZED_FRAMES.name)
        (_, height, width), pool = spec.kernel[0], spec.number("pool")
        channels = self.squeezed_frames * spec.in_channels
        padding = height // 2, width // 2
        self.conv = nn.Conv2d(channels, spec.out_channels, (height, width), spec.stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(spec.out_channels)
        self.activation = activation(spec.activation)
        self.pool = nn.MaxPool2d(3, pool, 1) if pool > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, T, H, W) -> (N, C', T / squeezed_frames, H', W')."""
        y = self.pool(self.activation(self.norm(self.conv(_squeezed(frames_to_batch(x), self.squeezed_frames)))))
        return batch_to_frames(y, x.shape[2] // self.squeezed_frames)

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """Folded in and out."""
        conv = _filled(self.conv, _behind_norm(self.conv, self.norm))
        return _DeployedStem(self.squeezed_frames, nn.Sequential(conv, _act(self.activation), self.pool)).eval()


class NormedConvolution(nn.Module):
    """A convolution and its normalisation."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv
        self.norm = nn.BatchNorm2d(conv.out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))  # type: ignore[no-any-return]

    def joined(self) -> nn.Conv2d:
        """Both as one convolution."""
        return _filled(self.conv, _behind_norm(self.conv, self.norm))


class TemporalFocusGate(nn.Module):
    """Weights of channels between 0 and 1, from their means over a picture: (N, C, H, W) -> (N, C, 1, 1)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.expand = nn.Conv2d(channels, channels, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.reduce(x.mean((-2, -1), keepdim=True))))
        return torch.sigmoid(self.expand(x))


class ObjectInteraction(nn.Module):
    """A convolution times a gate of three, with a map of positions before the second: (N, C, H, W) -> (N, C, H, W).

    The convolution sees the pictures, the gate the pictures with weighted channels.
    """

    def __init__(self, channels: int, inner: int, kernel: Kernel, position: int) -> None:
        super().__init__()
        near, far = kernel
        self.local = _convolution(channels, channels, near)
        self.position = nn.Parameter(torch.empty(1, inner, position, position))
        nn.init.kaiming_normal_(self.position, mode="fan_out", nonlinearity="relu")
        self.conv_a = _convolution(channels, inner, near)
        self.norm_a = nn.BatchNorm2d(inner)
        self.conv_b = _convolution(inner, inner, far)
        self.norm_b = nn.BatchNorm2d(inner)
        self.conv_c = _convolution(inner, channels, near)

    def forward(self, x: torch.Tensor, weighted: torch.Tensor) -> torch.Tensor:
        gate = F.relu(self.norm_a(self.conv_a(weighted)))
        gate = F.relu(self.norm_b(self.conv_b(gate + self.positions(x.shape[-2], x.shape[-1]))))
        return self.local(x) * torch.sigmoid(self.conv_c(gate))  # type: ignore[no-any-return]

    def positions(self, height: int, width: int) -> torch.Tensor:
        """The map for pictures of a size: (1, C, H, W)."""
        if self.position.shape[-2:] == (height, width):
            return self.position
        return F.interpolate(self.position, (height, width), mode="bilinear", align_corners=True)


class ChannelTimeLearning(nn.Module):
    """Temporal focus and interaction of objects, added: (N, C, H, W) -> (N, C, H, W)."""

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        channels, numbers = spec.mid_channels, (spec.number(INTERACTION.name), spec.number(POSITION.name))
        self.gate = TemporalFocusGate(channels)
        self.focus = nn.Conv2d(channels, channels, 1, bias=False)
        self.interaction = ObjectInteraction(channels, numbers[0], spec.kernel, numbers[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weighted = x * self.gate(x)
        return self.focus(weighted) + self.interaction(x, weighted)  # type: ignore[no-any-return]


class ChannelTimeBottleneck(PictureModule, Residual):
    """``act(shortcut(x) + branch(x))`` with a Channel-Time Learning block in the middle of the branch.

    With a stride x is what a depthwise convolution of that size makes of the input.
    """

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        mid, out, step = spec.mid_channels, spec.out_channels, spec.stride
        self.downsample: NormedConvolution | None = None
        if step > 1:
            down = nn.Conv2d(spec.in_channels, spec.in_channels, step, step, groups=spec.in_channels)
            self.downsample = NormedConvolution(down)
        self.conv_a = nn.Conv2d(spec.in_channels, mid, 1, bias=False)
        self.norm_a = nn.BatchNorm2d(mid)
        self.act_a = activation(spec.activation)
        self.conv_b = ChannelTimeLearning(spec)
        self.norm_b = nn.BatchNorm2d(mid)
        self.act_b = activation(spec.activation)
        self.conv_c = nn.Conv2d(mid, out, 1, bias=False)
        self.norm_c = nn.BatchNorm2d(out)
        self.shortcut: NormedConvolution | None = None
        if spec.in_channels != out:
            self.shortcut = NormedConvolution(nn.Conv2d(spec.in_channels, out, 1, bias=False))
        self.activation = activation(spec.activation)

    @property
    def final_norm(self) -> nn.Module | None:
        return self.norm_c

    def pictures(self, x: torch.Tensor) -> torch.Tensor:
        if self.downsample is not None:
            x = self.downsample(x)
        y = self.act_a(self.norm_a(self.conv_a(x)))
        y = self.act_b(self.norm_b(self.conv_b(y)))
        shortcut = x if self.shortcut is None else self.shortcut(x)
        return self.activation(self.norm_c(self.conv_c(y)) + shortcut)  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """Folded in and out."""
        return _DeployedBottleneck(self, input).eval()


class _DeployedStem(nn.Module):
    def __init__(self, frames: int, layers: nn.Module) -> None:
        super().__init__()
        self.frames, self.layers = frames, layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(_squeezed(x, self.frames))  # type: ignore[no-any-return]


class _DeployedBottleneck(nn.Module):
    def __init__(self, block: ChannelTimeBottleneck, input: TensorSpec) -> None:
        super().__init__()
        down, short = block.downsample, block.shortcut
        self.downsample = nn.Identity() if down is None else down.joined()
        self.conv_a = nn.Sequential(_filled(block.conv_a, _behind_norm(block.conv_a, block.norm_a)), _act(block.act_a))
        step = 1 if down is None else int(down.conv.stride[0])
        size = (input.h // step, input.w // step)
        self.conv_b = _DeployedChannelTime(block.conv_b, block.norm_b, size)
        self.act_b = _act(block.act_b)
        self.conv_c = _filled(block.conv_c, _behind_norm(block.conv_c, block.norm_c))
        self.shortcut = nn.Identity() if short is None else short.joined()
        self.add, self.activation = FloatFunctional(), _act(block.activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.downsample(x)
        y = self.conv_c(self.act_b(self.conv_b(self.conv_a(x))))
        return self.activation(self.add.add(y, self.shortcut(x)))  # type: ignore[no-any-return]


class _DeployedChannelTime(nn.Module):
    """With the normalisation behind it, whose scale both branches take and whose shift the first."""

    positions: torch.Tensor

    def __init__(self, block: ChannelTimeLearning, norm: nn.BatchNorm2d, size: tuple[int, int]) -> None:
        super().__init__()
        gate, inner = block.gate, block.interaction
        reduce = _filled(gate.reduce, _behind_norm(gate.reduce, gate.norm))
        self.gate = nn.Sequential(reduce, nn.ReLU(), _filled(gate.expand, (gate.expand.weight, None)))
        self.focus = _filled(block.focus, _behind_norm(block.focus, norm))
        weight, bias = _behind_norm(inner.local, norm, shifted=False)
        self.local = _filled(inner.local, (weight, bias))
        self.conv_a = nn.Sequential(_filled(inner.conv_a, _behind_norm(inner.conv_a, inner.norm_a)), nn.ReLU())
        self.register_buffer("positions", inner.positions(*size).detach().clone())
        self.conv_b = nn.Sequential(_filled(inner.conv_b, _behind_norm(inner.conv_b, inner.norm_b)), nn.ReLU())
        self.conv_c = _filled(inner.conv_c, (inner.conv_c.weight, inner.conv_c.bias))
        self.weigh, self.place, self.pick, self.add = (FloatFunctional() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weighted = self.weigh.mul(x, torch.sigmoid(self.gate(x.mean((-2, -1), keepdim=True))))
        placed = self.place.add(self.conv_a(weighted), self.positions)
        picked = self.pick.mul(self.local(x), torch.sigmoid(self.conv_c(self.conv_b(placed))))
        return self.add.add(self.focus(weighted), picked)


def stem(spec: BlockSpec) -> nn.Module:
    """What kind ``squeeze-stem`` stands for."""
    return SqueezeStem(spec)


def channel_time(spec: BlockSpec) -> nn.Module:
    """What kind ``channel-time`` stands for."""
    return ChannelTimeBottleneck(spec)


def _squeezed(x: torch.Tensor, frames: int) -> torch.Tensor:
    """Folded frames (N·T, C, H, W) -> (N·T / frames, frames·C, H, W)."""
    _, channels, height, width = x.shape
    return x.reshape(-1, frames * channels, height, width)


def _convolution(in_channels: int, out_channels: int, kernel: Size = POINT) -> nn.Conv2d:
    """With a bias, padded by half its kernel."""
    _, height, width = kernel
    return nn.Conv2d(in_channels, out_channels, (height, width), padding=(height // 2, width // 2))


def _behind_norm(conv: nn.Conv2d, norm: nn.BatchNorm2d, *, shifted: bool = True) -> Folded:
    """Weight and bias of a convolution with a normalisation behind it; without its shift: of one that only scales."""
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise UnsupportedModule(f"expected BatchNorm2d with running statistics behind a convolution, got {norm}")
    if shifted:
        return fuse_conv_bn_weights(conv.weight, conv.bias, mean, variance, norm.eps, norm.weight, norm.bias)
    scale = norm.weight * torch.rsqrt(variance + norm.eps)
    return conv.weight * scale.reshape(-1, 1, 1, 1), None if conv.bias is None else conv.bias * scale


def _filled(conv: nn.Conv2d, values: Folded) -> nn.Conv2d:
    """The convolution with other values, frozen."""
    weight, bias = values
    assert not isinstance(conv.padding, str)
    return conv2d(weight, bias, conv.stride, conv.padding, conv.dilation, conv.groups)


def _act(layer: nn.Module) -> nn.Module:
    """The deploy form of an activation."""
    assert isinstance(layer, Activation)
    return layer.to_deploy()
