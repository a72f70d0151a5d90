"""Squeeze-and-excitation."""

from __future__ import annotations

import copy

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.layout import clip_mean
from hwbench.blocks.mobile_cpu.taps import filled_conv
from hwbench.blocks.streaming import MeanStep, StreamStep, named
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
        return (CausalGate if self.se.is_causal else ClipGate)(self.se.block, input).eval()

    def causal(self) -> None:
        self.se.is_causal = True

    def to_stream(self, input: TensorSpec) -> StreamStep:
        if not self.se.is_causal:
            raise UnsupportedModule(
                "a squeeze-excite over the whole clip has no stream form; stream a causal network (blocks with ca1 in "
                "their keys)"
            )
        return StreamGate(self.se.block, input)

    def output(self, x: TensorSpec) -> TensorSpec:
        return x


class _Gate(nn.Module):
    """x · sigmoid(W2 act(W1 mean(x) + b1) + b2), mean over all positions; in causal form, of each frame, over all
    positions of that frame and of those before it.
    """

    is_causal = False

    def __init__(self, channels: int, reduced: int, is_3d: bool, act: nn.Module) -> None:
        super().__init__()
        conv = nn.Conv3d if is_3d else nn.Conv2d
        self.block = nn.Sequential(conv(channels, reduced, 1), act, conv(reduced, channels, 1), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        axes = tuple(range(2, x.dim()))
        if not self.is_causal:
            gate: torch.Tensor = self.block(x.mean(axes, keepdim=True))
            return x * gate
        frames = torch.arange(1, x.shape[2] + 1, dtype=x.dtype, device=x.device).reshape(-1, 1, 1)
        return x * self.block(x.mean((3, 4), keepdim=True).cumsum(2) / frames)  # type: ignore[no-any-return]


class ClipGate(nn.Module):
    """The deploy form: the mean of a clip over folded frames, two 1 x 1 convolutions, a product."""

    def __init__(self, block: nn.Sequential, input: TensorSpec) -> None:
        super().__init__()
        self.block = _folded(block)
        self.mul = FloatFunctional()
        self.spec = input

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.block(clip_mean(x, self.spec))
        if self.spec.n == 1 or self.spec.t == 1:
            return self.mul.mul(x, gate)
        n, c, t, h, w = self.spec.shape
        clips = self.mul.mul(x.reshape(n, t, c, h, w), gate.reshape(n, 1, c, 1, 1))
        return clips.reshape(n * t, c, h, w)


class CausalGate(nn.Module):
    """The deploy form of a causal one: frame t is weighted by the mean over frames 1 to t.

    These means are a convolution over the frame means (N, T, C, 1) whose channels are frames, with the weight 1/t for
    the frames up to t.
    """

    def __init__(self, block: nn.Sequential, input: TensorSpec) -> None:
        super().__init__()
        self.block = _folded(block)
        self.mul = FloatFunctional()
        self.spec = input
        like = next(self.block.parameters())
        frames = torch.arange(1, input.t + 1, dtype=torch.float64).reshape(-1, 1)
        shares = (torch.ones(input.t, input.t).tril() / frames).to(like)
        self.means = filled_conv(shares[..., None, None], None, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = x.mean((-2, -1), keepdim=True)
        if self.spec.t > 1:
            n, c, t = self.spec.n, self.spec.c, self.spec.t
            means = self.means(means.reshape(n, t, c, 1)).reshape(n * t, c, 1, 1)
        return self.mul.mul(x, self.block(means))


class StreamGate(StreamStep):
    """The step of a causal one: a mean over all frames so far is carried on."""

    def __init__(self, block: nn.Sequential, input: TensorSpec) -> None:
        super().__init__()
        self.mean = MeanStep(input.n, input.c)
        self.block = _folded(block)
        self.mul = FloatFunctional()
        self.states = tuple(named("mean", state) for state in self.mean.states)

    def forward(self, x: torch.Tensor, share: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean, renewed = self.mean(x, share, *states)
        return self.mul.mul(x, self.block(mean)), renewed


def _folded(block: nn.Sequential) -> nn.Sequential:
    """The layers of a gate on pictures."""
    if len(block) != 4:
        raise UnsupportedModule(f"squeeze-excite: expected two convolutions, each with an activation, got {block}")
    expand, act, reduce, gate = block
    return nn.Sequential(_as_2d(expand), copy.deepcopy(act), _as_2d(reduce), copy.deepcopy(gate))


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
