"""Convolutions and what is linear besides: conv3d, conv2d, linear, batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import nn

from hwbench.blocks.graph.frames import OverTime, Pad, TapSum, seen_by, taken
from hwbench.blocks.graph.pointwise import Op
from hwbench.blocks.graph.rules import BATCH_NORM, Call, rule
from hwbench.blocks.graph.values import CHANNELS_LAST, Clip, Plain
from hwbench.blocks.mobile_cpu.temporal import folded_conv
from hwbench.specs import AUTO, TensorSpec

Layer = TypeVar("Layer", nn.Conv2d, nn.Conv3d, nn.Linear)

# XNNPACK computes these within the convolution, if they stand right behind it.
FUSED = ("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default")


@dataclass(frozen=True)
class Convolution3d:
    """Weight (out, in/groups, kt, kh, kw), bias, and the geometry of T, H and W; padding (before, after) by axis."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def kernel(self) -> tuple[int, ...]:
        """(kt, kh, kw)."""
        return tuple(self.weight.shape[2:])

    def folded(self, act: nn.Module, input: TensorSpec, output: TensorSpec, variant: str = AUTO) -> nn.Module:
        """``act(conv(x))`` on folded clips."""
        lopsided = tuple(pad if pad[0] != pad[1] else (0, 0) for pad in self.padding[1:])
        if any(map(any, lopsided)):
            pad = Pad(input, [(0, 0), (0, 0), *lopsided])
            input = input.with_(h=input.h + sum(lopsided[0]), w=input.w + sum(lopsided[1]))
            return nn.Sequential(pad, self._even(lopsided).folded(act, input, output, variant))
        kt, half = self.kernel[0], self.kernel[0] // 2
        if kt % 2 and (self.stride[0], self.dilation[0], *self.padding[0]) == (1, 1, half, half):
            return folded_conv(self._conv3d(), None, act, input, variant)
        if self._only_time() and input.t > 1:
            return OverTime(nn.Sequential(self._over_time(), act), input, output)
        return _behind(self._tap_sum(input, output), act)

    def _tap_sum(self, input: TensorSpec, output: TensorSpec) -> nn.Module:
        stride, everything = self.stride[0], range(output.t)
        offsets = [k * self.dilation[0] - self.padding[0][0] for k in range(self.kernel[0])]
        seen = [seen_by(offset, stride, input.t, output.t) for offset in offsets]
        full = [k for k, frames in enumerate(seen) if frames == everything]
        if not full:  # no tap that could carry the bias for all frames: the frames outside are made
            front, back = self.padding[0]
            pad = Pad(input, [(0, 0), (front, back), (0, 0), (0, 0)])
            padded = replace(self, padding=((0, 0), *self.padding[1:]))
            return nn.Sequential(pad, padded._tap_sum(input.with_(t=input.t + front + back), output))
        bias = min(full, key=lambda k: abs(k - self.kernel[0] // 2))
        taps = [self._conv2d(self.weight[:, :, k], self.bias if k == bias else None) for k in range(self.kernel[0])]
        if sum(map(bool, seen)) == 1:
            return _behind(taken(input, offsets[bias], stride, output.t), taps[bias])
        return TapSum(taps, offsets, bias, stride, input, output)

    def _only_time(self) -> bool:
        front, back = self.padding[0]
        space = (self.kernel[1:], self.stride[1:], self.padding[1:])
        return self.kernel[0] > 1 and front == back and space == ((1, 1), (1, 1), ((0, 0), (0, 0)))

    def _over_time(self) -> nn.Conv2d:
        geometry = ((self.stride[0], 1), (self.padding[0][0], 0), (self.dilation[0], 1))
        return conv2d(self.weight[:, :, :, :, 0], self.bias, *geometry, self.groups)

    def _conv2d(self, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Conv2d:
        padding = [pad[0] for pad in self.padding[1:]]
        return conv2d(weight, bias, self.stride[1:], padding, self.dilation[1:], self.groups)

    def _conv3d(self) -> nn.Conv3d:
        out, inner = self.weight.shape[:2]
        conv = nn.Conv3d(inner * self.groups, out, 1, groups=self.groups, bias=False, device="meta")
        conv.kernel_size, conv.stride, conv.dilation = map(_three, (self.kernel, self.stride, self.dilation))
        conv.padding = _three([pad[0] for pad in self.padding])
        return filled(conv, self.weight, self.bias)

    def _even(self, lopsided: Sequence[tuple[int, int]]) -> Convolution3d:
        space = [(0, 0) if any(lost) else pad for lost, pad in zip(lopsided, self.padding[1:], strict=True)]
        return replace(self, padding=(self.padding[0], *space))


def conv2d(weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int], padding: Sequence[int],
           dilation: Sequence[int], groups: int) -> nn.Conv2d:  # fmt: skip
    """A 2-D convolution with these values, frozen."""
    out, inner = weight.shape[:2]
    k, s, p, d = ((int(v[0]), int(v[1])) for v in (weight.shape[2:], stride, padding, dilation))
    return filled(nn.Conv2d(inner * groups, out, k, s, p, d, groups, bias=False, device="meta"), weight, bias)


def fully_connected(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """A linear layer with these values, frozen."""
    return filled(nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta"), weight, bias)


def scaled(weight: torch.Tensor, bias: torch.Tensor | None, scale: torch.Tensor, shift: torch.Tensor) -> tuple[
    torch.Tensor, torch.Tensor
]:  # fmt: skip
    """Weight and bias of a convolution or linear layer with ``scale · y + shift`` behind it."""
    weight = weight * scale.reshape(-1, *[1] * (weight.dim() - 1))
    return weight, shift if bias is None else bias * scale + shift


@rule("aten.conv3d.default", "aten.conv3d.padding", "aten.conv2d.default", "aten.conv2d.padding",
      "aten.conv1d.default", "aten.conv1d.padding")  # fmt: skip
def convolution(call: Call) -> Clip | Plain:
    """conv3d on a clip, conv2d on (N, C, H, W), conv1d on (N, C, L) as pictures of one column.

    The normalisation and activation behind it are taken in.
    """
    weight, bias = call.constant("weight"), call.constant("bias")
    assert weight is not None
    axes = weight.dim() - 2
    stride, dilation = _each(call["stride"], axes), _each(call["dilation"], axes)
    padding = _padding(call["padding"], weight.shape[2:], dilation)
    norm = call.follower((BATCH_NORM,))
    if norm is not None:
        weight, bias = scaled(weight, bias, *call.affine(norm))
    act = _fused(call)
    if axes == 3:
        x = call.clip("input")
        conv = Convolution3d(weight, bias, stride, padding, dilation, call["groups"])
        module = conv.folded(act, x.spec, TensorSpec(*call.shape), call.variant)
        return call.result(call.emit(module, x))
    picture = call["input"]
    if not isinstance(picture, Plain) or len(picture.shape) != axes + 2:
        call.refuse(f"a tensor (N, C, {'H, W' if axes == 2 else 'L'}) is expected")
    if axes == 1:
        picture, weight = call.reshaped(picture, (*picture.shape, 1)), weight[..., None]
        stride, padding, dilation = (*stride, 1), (*padding, (0, 0)), (*dilation, 1)
    whole = all(front == back for front, back in padding)
    if not whole:
        (top, bottom), (left, right) = padding
        node = call.emit(Op(torch.ops.aten.constant_pad_nd.default, [left, right, top, bottom]), picture)
        picture = Plain(node, picture.shape)
    edges = [pad[0] if whole else 0 for pad in padding]
    module = _behind(conv2d(weight, bias, stride, edges, dilation, call["groups"]), act)
    return call.reshaped(Plain(call.emit(module, picture), (*call.shape, 1)[:4]), call.shape)


@rule(BATCH_NORM)
def batch_norm(call: Call) -> Clip | Plain:
    """Where no convolution takes it in: a depthwise 1x1 convolution."""
    x = call["input"]
    scale, shift = call.affine(call.node)
    if isinstance(x, Clip):
        x = call.clip("input")
    elif len(x.shape) == 2:
        return Plain(call.emit(Affine(scale, shift), x), x.shape)
    module = conv2d(scale.reshape(-1, 1, 1, 1), shift, (1, 1), (0, 0), (1, 1), scale.numel())
    if isinstance(x, Clip):
        return call.result(call.emit(module, x))
    picture = call.reshaped(x, (*x.shape, 1)[:4])
    return call.reshaped(Plain(call.emit(module, picture), picture.shape), call.shape)


@rule("aten.linear.default")
def linear(call: Call) -> Clip | Plain:
    """Over the last axis; of five axes a 1x1 convolution, with that axis as channels."""
    x, weight, bias = call["input"], call.constant("weight"), call.constant("bias")
    assert weight is not None
    if isinstance(x, Clip):
        x = x if x.order[-1] == "C" else call.refolded(x, CHANNELS_LAST)
        module = conv2d(weight[:, :, None, None], bias, (1, 1), (0, 0), (1, 1), 1)
        return call.result(call.emit(module, x), x.order)
    if len(x.shape) == 2:
        norm = call.follower((BATCH_NORM,))
        if norm is not None:
            weight, bias = scaled(weight, bias, *call.affine(norm))
    return call.result(call.emit(fully_connected(weight, bias), x))


class Affine(nn.Module):
    """``scale · x + shift`` per channel of (N, C)."""

    def __init__(self, scale: torch.Tensor, shift: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale.clone())
        self.register_buffer("shift", shift.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift  # type: ignore[operator]


def _fused(call: Call) -> nn.Module:
    """The activation behind a convolution, if XNNPACK computes it within."""
    act = call.follower(FUSED)
    return nn.Identity() if act is None else Op(act.target, *act.args[1:], **act.kwargs)


def _behind(first: nn.Module, then: nn.Module) -> nn.Module:
    """One after the other, less what does nothing."""
    parts = [part for part in (first, then) if not isinstance(part, nn.Identity)]
    return parts[0] if len(parts) == 1 else nn.Sequential(*parts)


def _padding(padding: str | Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> tuple[
    tuple[int, int], ...
]:  # fmt: skip
    """(before, after) by axis; ``same`` puts the odd one after."""
    if isinstance(padding, str):
        totals = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((pad, pad) for pad in _each(padding, len(kernel)))


def _each(values: Sequence[int], axes: int) -> tuple[int, ...]:
    return tuple(values) if len(values) == axes else (values[0],) * axes


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    t, h, w = values
    return t, h, w


def filled(layer: Layer, weight: torch.Tensor, bias: torch.Tensor | None) -> Layer:
    """The layer with these values, frozen."""
    layer.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format), requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return layer
