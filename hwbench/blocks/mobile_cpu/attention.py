"""Squeeze-and-excitation."""

from __future__ import annotations

import copy

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.layout import clip_mean
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, TensorSpec


class SqueezeExcitation(EfficientBlock):
    """Channels weighted by what the whole clip (or picture) holds (Hu et al. 2018).

    Args:
        num_channels: C.
        num_channels_reduced: Channels inside; default C / ``reduction_ratio``, rounded down.
        reduction_ratio: See above.
        is_3d: Inputs are (N, C, T, H, W) instead of (N, C, H, W).
        activation: Between the two layers; default ReLU.
    """

    def __init__(
        self,
        num_channels: int,
        num_channels_reduced: int | None = None,
        reduction_ratio: float = 2.0,
        is_3d: bool = False,
        activation: nn.Module | None = None,
    ) -> None:
        super().__init__()
        reduced = num_channels_reduced or int(num_channels // reduction_ratio)
        self.se = _Gate(num_channels, reduced, is_3d, activation or nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.se(x)  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        return ClipGate(self.se.block, input).eval()

    def output(self, x: TensorSpec) -> TensorSpec:
        return x


class _Gate(nn.Module):
    """x · sigmoid(W2 act(W1 mean(x) + b1) + b2), mean over all positions."""

    def __init__(self, channels: int, reduced: int, is_3d: bool, act: nn.Module) -> None:
        super().__init__()
        conv = nn.Conv3d if is_3d else nn.Conv2d
        self.block = nn.Sequential(conv(channels, reduced, 1), act, conv(reduced, channels, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        axes = tuple(range(2, x.dim()))
        gate: torch.Tensor = self.block(x.mean(axes, keepdim=True))
        return x * gate


class ClipGate(nn.Module):
    """The deploy form: the mean of a clip over folded frames, two 1 x 1 convolutions, a product."""

    def __init__(self, block: nn.Sequential, input: TensorSpec) -> None:
        super().__init__()
        expand, act, reduce = block[0], block[1], block[2]
        self.block = nn.Sequential(_as_2d(expand), copy.deepcopy(act), _as_2d(reduce), nn.Sigmoid())
        self.mul = FloatFunctional()
        self.spec = input

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.block(clip_mean(x, self.spec))
        if self.spec.n == 1 or self.spec.t == 1:
            return self.mul.mul(x, gate)
        n, c, t, h, w = self.spec.shape
        clips = self.mul.mul(x.reshape(n, t, c, h, w), gate.reshape(n, 1, c, 1, 1))
        return clips.reshape(n * t, c, h, w)


def _as_2d(conv: nn.Module) -> nn.Conv2d:
    """A 1 x 1 (x 1) convolution as one on pictures, frozen."""
    if not isinstance(conv, nn.Conv2d | nn.Conv3d):
        raise UnsupportedModule(f"squeeze-excite: expected a 1x1x1 convolution, got {conv}")
    weight = conv.weight.detach()
    made = nn.Conv2d(conv.in_channels, conv.out_channels, 1, bias=conv.bias is not None, device="meta")
    shape = (*weight.shape[:2], 1, 1)
    made.weight = nn.Parameter(weight.reshape(shape).clone(), requires_grad=False)
    if conv.bias is not None:
        made.bias = nn.Parameter(conv.bias.detach().clone(), requires_grad=False)
    return made
