"""Convolutions over time and space with frames as batch, exactly.

A 3-D convolution with zero padding is a sum over its temporal taps: ``y[t] = sum over k of f_k(x[t + k - K//2])``,
where f_k is the 2-D convolution with tap k of the kernel. Frames outside the clip are zero and drop out of the sum. The
variants below lay this sum out differently; which is fastest is a matter of device and precision, so the variant is
part of what is measured.

    shift-add   one 2-D convolution per tap on just the frames it sees; shifted sums by slices and one concatenation
    one-hot     one 2-D convolution per tap on all frames; shifted by depthwise convolutions whose kernel over time is
                all zeros but for a one

In all of them the number of operations is independent of T, and every convolution is called once. Two cases have a
better form and no variants: one temporal tap (or one frame) is one 2-D convolution; k x 1 x 1 is one convolution with
kernel (k, 1) on (N, C, T, H·W).
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import nn

from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.layout import frames, from_planes, to_planes
from hwbench.blocks.norm import fold_norm
from hwbench.errors import UnsupportedModule
from hwbench.registry import Registry
from hwbench.specs import AUTO, TensorSpec

SHIFT_ADD = "shift-add"
ONE_HOT = "one-hot"

_Sizes = tuple[int, ...]
# A layout: from the convolution (its taps), the bias and the input's shape to a folded module.
Layout = Callable[["Taps", TensorSpec], nn.Module]
variants: Registry[Layout] = Registry("variant")


def resolve(variant: str) -> str:
    """The variant that ``auto`` stands for, or the variant itself.

    Raises:
        UnknownName: No such variant.
    """
    name = SHIFT_ADD if variant == AUTO else variant
    variants.get(name)
    return name


def folded_conv(
    conv: nn.Conv3d, norm: nn.Module | None, act: nn.Module, input: TensorSpec, variant: str = AUTO
) -> nn.Module:
    """``act(norm(conv(x)))`` in eval mode on folded inputs.

    The activation stands where a runtime can fuse it: right behind the last convolution or sum.

    Raises:
        UnsupportedModule: The convolution is strided over time, or padded over time otherwise than by half its kernel
            with zeros.
        UnknownName: No such variant.
    """
    layout = variants.get(resolve(variant))
    taps = Taps(conv, norm)
    if taps.pointwise and taps.count > 1 and input.t > 1:
        return TemporalConv(taps, act, input).eval()
    folded = taps.conv2d(taps.centre, bias=True) if taps.count == 1 or input.t == 1 else layout(taps, input)
    if isinstance(act, nn.Identity):
        return folded.eval()
    return nn.Sequential(OrderedDict(conv=folded, act=act)).eval()


def convolved(conv: nn.Conv3d, x: TensorSpec) -> TensorSpec:
    """Shape after a convolution, by the formula of ``torch.nn.Conv3d``."""
    if isinstance(conv.padding, str):
        raise UnsupportedModule(f"a convolution with padding={conv.padding!r}: give the padding in numbers")
    axes = zip((x.t, x.h, x.w), conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    t, h, w = ((size + 2 * pad - dil * (k - 1) - 1) // stride + 1 for size, k, stride, pad, dil in axes)
    return TensorSpec(x.n, conv.out_channels, t, h, w)


class Taps:
    """The temporal taps of a convolution with its normalisation folded in."""

    def __init__(self, conv: nn.Conv3d, norm: nn.Module | None) -> None:
        time = (conv.stride[0], conv.dilation[0])
        half = conv.kernel_size[0] // 2
        if isinstance(conv.padding, str) or conv.padding_mode != "zeros" or conv.kernel_size[0] % 2 == 0:
            raise UnsupportedModule(f"expected an odd kernel over time and zero padding in numbers, got {conv}")
        if time != (1, 1) or conv.padding[0] != half:
            raise UnsupportedModule(f"expected stride 1, dilation 1 and half padding over time, got {conv}")
        self._conv = conv
        self.weight, self.bias = fold_norm(conv, norm)
        self.count = conv.kernel_size[0]
        self.centre = half
        # Offset of the frame that a tap reads from the frame that it writes.
        self.offsets = tuple(range(-half, half + 1))

    @property
    def pointwise(self) -> bool:
        """Whether it is k x 1 x 1 and keeps every position."""
        c = self._conv
        return c.kernel_size[1:] == (1, 1) and c.stride[1:] == (1, 1) and c.padding[1:] == (0, 0)

    def conv2d(self, tap: int, *, bias: bool) -> nn.Conv2d:
        """The 2-D convolution with one tap; only one of the taps should carry the bias."""
        c = self._conv
        made = _conv2d(c, c.kernel_size[1:], c.stride[1:], c.padding[1:], c.dilation[1:])
        return _filled(made, self.weight[:, :, tap], self.bias if bias else None)

    def over_time(self) -> nn.Conv2d:
        """The k x 1 x 1 convolution as one with kernel (k, 1)."""
        c = self._conv
        made = _conv2d(c, (self.count, 1), (1, 1), (self.centre, 0), (1, 1))
        return _filled(made, self.weight[:, :, :, :, 0], self.bias)

    def output(self, input: TensorSpec) -> TensorSpec:
        """Shape after the convolution."""
        return convolved(self._conv, input)


class TemporalConv(nn.Module):
    """k x 1 x 1 as one convolution with kernel (k, 1) on (N, C, T, H·W), the activation right behind it."""

    def __init__(self, taps: Taps, act: nn.Module, input: TensorSpec) -> None:
        super().__init__()
        self.conv = taps.over_time()
        self.act = act
        self.spec = input

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return from_planes(self.act(self.conv(to_planes(x, self.spec))), self.spec)


@variants.register(SHIFT_ADD)
class ShiftAdd(nn.Module):
    """Every tap on the frames it sees; frames with the same taps are summed together, then put in a row.

    For three taps and T frames: y[0] = c[0] + n[1], y[1:-1] = c[1:-1] + p[:-2] + n[2:], y[-1] = c[-1] + p[-2].
    """

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__()
        t, self.input, self.out = input.t, input, taps.output(input)
        self.offsets = [offset for offset in taps.offsets if abs(offset) < t]
        self.convs = nn.ModuleList(taps.conv2d(offset + taps.centre, bias=offset == 0) for offset in self.offsets)
        edges = sorted({0, t, *(max(-o, 0) for o in self.offsets), *(min(t - o, t) for o in self.offsets)})
        self.segments = list(itertools.pairwise(edges))
        self.adds = nn.ModuleList(FloatFunctional() for _ in range(sum(len(self._seen(s)) - 1 for s in self.segments)))
        self.cat = FloatFunctional()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        t = self.input.t
        taps = []
        for conv, offset in zip(self.convs, self.offsets):
            taps.append(conv(frames(x, max(offset, 0), min(t + offset, t), self.input)))
        adds = iter(self.adds)
        parts = []
        for segment in self.segments:
            total, *terms = [self._part(taps[index], self.offsets[index], segment) for index in self._seen(segment)]
            for term in terms:
                total = next(adds).add(total, term)  # type: ignore[operator]
            parts.append(total)
        return self._join(parts)

    def _seen(self, segment: tuple[int, int]) -> list[int]:
        """The taps that the frames of a segment have: the centre first, which carries the bias."""
        first, last = segment
        seen = [i for i, o in enumerate(self.offsets) if first + o >= 0 and last + o <= self.input.t]
        return sorted(seen, key=lambda i: (abs(self.offsets[i]), i))

    def _part(self, y: torch.Tensor, offset: int, segment: tuple[int, int]) -> torch.Tensor:
        """The frames of a tap's output that belong to a segment; a tap that looks back starts ``-offset`` frames in."""
        lost = max(-offset, 0)
        spec = self.out.with_(t=self.input.t - abs(offset))
        return frames(y, segment[0] - lost, segment[1] - lost, spec)

    def _join(self, parts: list[torch.Tensor]) -> torch.Tensor:
        if self.input.n == 1:
            return self.cat.cat(parts, 0)
        shape = (self.input.n, -1, *self.out.folded[1:])
        return self.cat.cat([p.reshape(shape) for p in parts], 1).reshape(self.out.folded)


@variants.register(ONE_HOT)
class OneHot(nn.Module):
    """Every tap on all frames, shifted by a depthwise (k, 1) convolution on (N, C, T, H·W) whose kernel is one-hot."""

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__()
        self.offsets = [offset for offset in taps.offsets if abs(offset) < input.t]
        self.out = taps.output(input)
        self.convs = nn.ModuleList(taps.conv2d(offset + taps.centre, bias=offset == 0) for offset in self.offsets)
        self.shifts = nn.ModuleDict({str(o): _shift(self.out.c, o, taps.weight) for o in self.offsets if o})
        self.adds = nn.ModuleList(FloatFunctional() for _ in self.offsets[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted = []
        for conv, offset in zip(self.convs, self.offsets):
            y = conv(x)
            shifted.append(from_planes(self.shifts[str(offset)](to_planes(y, self.out)), self.out) if offset else y)
        total = shifted[0]
        for add, term in zip(self.adds, shifted[1:]):
            total = add.add(total, term)  # type: ignore[operator]
        return total


def _shift(channels: int, offset: int, like: torch.Tensor) -> nn.Conv2d:
    reach = abs(offset)
    weight = like.new_zeros(channels, 1, 2 * reach + 1, 1)
    weight[:, :, reach + offset] = 1
    made = nn.Conv2d(channels, channels, (2 * reach + 1, 1), padding=(reach, 0), groups=channels, bias=False)
    return _filled(made, weight, None)


def _conv2d(conv: nn.Conv3d, kernel: _Sizes, stride: _Sizes, padding: str | _Sizes, dilation: _Sizes) -> nn.Conv2d:
    assert not isinstance(padding, str)  # refused by Taps
    k, s, p, d = ((size[0], size[1]) for size in (kernel, stride, padding, dilation))
    return nn.Conv2d(conv.in_channels, conv.out_channels, k, s, p, d, conv.groups, bias=False, device="meta")


def _filled(conv: nn.Conv2d, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Conv2d:
    """The convolution with these values, frozen, of their dtype and on their device."""
    conv.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format), requires_grad=False)
    conv.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
    return conv.eval()
