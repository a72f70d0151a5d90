"""The variants: ways to lay out a convolution over time and space as 2-D convolutions on frames as batch, exactly.

    shift-add   one 2-D convolution per tap on just the frames it sees; shifted sums by slices and one concatenation
    segments    one 2-D convolution per tap and run of frames with the same taps; nothing is cut out of what they give
    one-hot     one 2-D convolution per tap on all frames; shifted by depthwise convolutions whose kernel over time is
                all zeros but for a one
    separable   as few pairs of a convolution over space and one over time as the kernel has temporal rank, found by a
                singular value decomposition per channel; for depthwise kernels, others as shift-add
    stacked     one 2-D convolution with the channels of all taps on all frames, then as shift-add
    im2col      the frames that an output sees as channels of one 2-D convolution: one accumulation, no sums after it
    per-frame   one 2-D convolution per tap and frame, as PyTorchVideo's Accelerator did in 2021; for comparison

Which is fastest is a matter of device, precision and kernel, so the variant is part of what is measured. In all but
``per-frame`` the number of operations is independent of T, and every convolution is called once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import nn

from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.layout import frames, from_planes, to_planes
from hwbench.blocks.mobile_cpu.taps import Taps, filled_conv
from hwbench.registry import Registry
from hwbench.specs import TensorSpec

SHIFT_ADD = "shift-add"
ONE_HOT = "one-hot"
SEGMENTS = "segments"
SEPARABLE = "separable"
STACKED = "stacked"
IM2COL = "im2col"
PER_FRAME = "per-frame"

# From the taps and the input's shape to a folded module, (N·T, C, H, W) in and out.
Layout = Callable[[Taps, TensorSpec], nn.Module]
variants: Registry[Layout] = Registry("variant")


class _Segmented(nn.Module):
    """Frames with the same taps are computed together, then put in a row."""

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__()
        t, self.input, self.out = input.t, input, taps.output(input)
        self.offsets = taps.seen(t)
        edges = sorted({0, t, *(max(-o, 0) for o in self.offsets), *(min(t - o, t) for o in self.offsets)})
        self.segments = list(itertools.pairwise(edges))
        self.join = FloatFunctional()

    def seen(self, segment: tuple[int, int]) -> list[int]:
        """Offsets of the taps that the frames of a segment have, the centre first."""
        first, last = segment
        return [o for o in self.offsets if first + o >= 0 and last + o <= self.input.t]

    def joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The segments, each folded, as one folded activation."""
        if len(parts) == 1:
            return parts[0]
        if self.input.n == 1:
            return self.join.cat([*parts], 0)
        shape = (self.input.n, -1, *self.out.folded[1:])
        return self.join.cat([p.reshape(shape) for p in parts], 1).reshape(self.out.folded)


class _ShiftedSum(_Segmented):
    """Sums of outputs of taps. For three taps: y[0] = c[0] + n[1], y[1:-1] = c[1:-1] + p[:-2] + n[2:], ..."""

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__(taps, input)
        self.adds = nn.ModuleList(FloatFunctional() for _ in range(sum(len(self.seen(s)) - 1 for s in self.segments)))

    def summed(self, taps: dict[int, tuple[torch.Tensor, int, int]]) -> torch.Tensor:
        """Args:
        taps: By offset, what a tap gave, folded, and the frames first to last (not included) that it read.
        """
        adds = iter(self.adds)
        parts = []
        for segment in self.segments:
            total, *terms = [self._part(*taps[offset], offset, segment) for offset in self.seen(segment)]
            for term in terms:
                total = next(adds).add(total, term)  # type: ignore[operator]
            parts.append(total)
        return self.joined(parts)

    def _part(self, y: torch.Tensor, first: int, last: int, offset: int, segment: tuple[int, int]) -> torch.Tensor:
        lost = offset - first
        return frames(y, segment[0] + lost, segment[1] + lost, self.out.with_(t=last - first))


@variants.register(SHIFT_ADD)
class ShiftAdd(_ShiftedSum):
    """One convolution per tap, on the frames it sees."""

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__(taps, input)
        self.convs = nn.ModuleList(taps.conv2d(offset) for offset in self.offsets)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        t, taps = self.input.t, {}
        for conv, offset in zip(self.convs, self.offsets):
            first, last = max(offset, 0), min(t + offset, t)
            taps[offset] = (conv(frames(x, first, last, self.input)), first, last)
        return self.summed(taps)


@variants.register(SEGMENTS)
class Segments(_Segmented):
    """One convolution per segment and tap, on just the frames it reads: nothing is cut out of what they give."""

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__(taps, input)
        self.pairs = [(segment, offset) for segment in self.segments for offset in self.seen(segment)]
        self.convs = nn.ModuleList(taps.conv2d(offset) for _, offset in self.pairs)
        self.adds = nn.ModuleList(FloatFunctional() for _ in range(len(self.pairs) - len(self.segments)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adds = iter(self.adds)
        parts: dict[tuple[int, int], torch.Tensor] = {}
        for conv, ((first, last), offset) in zip(self.convs, self.pairs):
            y = conv(frames(x, first + offset, last + offset, self.input))
            total = parts.get((first, last))
            parts[first, last] = y if total is None else next(adds).add(total, y)  # type: ignore[operator]
        return self.joined([*parts.values()])


@variants.register(STACKED)
class Stacked(_ShiftedSum):
    """One convolution, whose output has the channels (group, tap, channel of the group)."""

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__(taps, input)
        self.groups, self.within = taps.groups, self.out.c // taps.groups
        weight = self._by_group([taps.tap(offset) for offset in self.offsets])
        bias = taps.bias
        if bias is not None:
            zero = torch.zeros_like(bias)
            bias = self._by_group([zero if offset else bias for offset in self.offsets])
        self.conv = taps.spatial(weight, bias, taps.groups)

    def _by_group(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        """Values per output channel of each tap (O, ...), as (group, tap, channel of the group) in one axis."""
        stacked = torch.cat([value.reshape(self.groups, self.within, -1) for value in values], 1)
        return stacked.reshape(-1, *values[0].shape[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        taps = {offset: (self._tap(y, place), 0, self.input.t) for place, offset in enumerate(self.offsets)}
        return self.summed(taps)

    def _tap(self, y: torch.Tensor, place: int) -> torch.Tensor:
        first, last = place * self.within, (place + 1) * self.within
        if self.groups == 1:
            return y[:, first:last]
        f, _, h, w = y.shape
        return y.reshape(f, self.groups, -1, h, w)[:, :, first:last].reshape(f, -1, h, w)


@variants.register(IM2COL)
class Im2col(_Segmented):
    """One convolution per segment on the channels (group, tap, channel of the group) of the frames it sees."""

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__(taps, input)
        self.groups = taps.groups
        self.gather = nn.ModuleList(FloatFunctional() for _ in self.segments)
        self.convs = nn.ModuleList(
            taps.spatial(torch.cat([taps.tap(o) for o in self.seen(segment)], 1), taps.bias, taps.groups)
            for segment in self.segments
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = []
        for conv, gather, segment in zip(self.convs, self.gather, self.segments):
            first, last = segment
            seen = [frames(x, first + o, last + o, self.input) for o in self.seen(segment)]
            parts.append(conv(seen[0] if len(seen) == 1 else self._channels(gather, seen)))
        return self.joined(parts)

    def _channels(self, gather: nn.Module, seen: list[torch.Tensor]) -> torch.Tensor:
        if self.groups == 1:
            return gather.cat(seen, 1)  # type: ignore[operator, no-any-return]
        f, _, h, w = seen[0].shape
        grouped = gather.cat([y.reshape(f, self.groups, -1, h, w) for y in seen], 2)  # type: ignore[operator]
        return grouped.reshape(f, -1, h, w)  # type: ignore[no-any-return]


class _TermsOverTime(nn.Module):
    """Sum of terms, each a convolution over space and one with kernel (k, 1) on (N, C, T, H·W), or none."""

    def __init__(self, terms: Sequence[tuple[nn.Module, nn.Module | None]], out: TensorSpec) -> None:
        super().__init__()
        self.convs = nn.ModuleList(space for space, _ in terms)
        self.over_time = nn.ModuleList(nn.Identity() if time is None else time for _, time in terms)
        self.adds = nn.ModuleList(FloatFunctional() for _ in terms[1:])
        self.out = out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total, *rest = [self._term(x, space, time) for space, time in zip(self.convs, self.over_time)]
        for add, term in zip(self.adds, rest):
            total = add.add(total, term)  # type: ignore[operator]
        return total

    def _term(self, x: torch.Tensor, space: nn.Module, time: nn.Module) -> torch.Tensor:
        y: torch.Tensor = space(x)
        return y if isinstance(time, nn.Identity) else from_planes(time(to_planes(y, self.out)), self.out)


@variants.register(ONE_HOT)
def one_hot(taps: Taps, input: TensorSpec) -> nn.Module:
    """Every tap on all frames, shifted by a depthwise (k, 1) convolution whose kernel is one-hot."""
    out = taps.output(input)
    terms = [(taps.conv2d(o), _shift(out.c, o, taps.weight) if o else None) for o in taps.seen(input.t)]
    return _TermsOverTime(terms, out)


@variants.register(SEPARABLE)
def separable(taps: Taps, input: TensorSpec) -> nn.Module:
    """Pairs of a depthwise convolution over space and one over time, as many as the temporal rank of the kernel."""
    if not taps.depthwise:
        return ShiftAdd(taps, input)
    channels, _, _, *kernel = taps.weight.shape
    u, s, v = torch.linalg.svd(taps.weight.flatten(3).squeeze(1), full_matrices=False)
    space = (s[:, :, None] * v).reshape(channels, -1, *kernel)
    terms = []
    for r in range(temporal_rank(taps.weight)):
        bias = None if r else taps.bias
        over_time = taps.row_conv(u[:, None, :, r, None], bias, channels)
        terms.append((taps.spatial(space[:, r, None], None, channels), over_time))
    return _TermsOverTime(terms, taps.output(input))


def temporal_rank(weight: torch.Tensor) -> int:
    """How many separable kernels a depthwise kernel (C, 1, K, kh, kw) is the sum of, at most min(K, kh·kw), at least 1.

    Per channel it is the rank of the matrix (K, kh·kw); the greatest of the channels counts, up to rounding.
    """
    singular = torch.linalg.svdvals(weight.flatten(3).squeeze(1))
    limit = singular[:, :1] * max(weight.shape[2:]) * torch.finfo(weight.dtype).eps
    return max(int((singular > limit).sum(1).max()), 1)


@variants.register(PER_FRAME)
class PerFrame(_Segmented):
    """One convolution per tap, called for one frame at a time; the number of operations grows with T."""

    def __init__(self, taps: Taps, input: TensorSpec) -> None:
        super().__init__(taps, input)
        self.convs = nn.ModuleList(taps.conv2d(offset) for offset in self.offsets)
        counts = [sum(0 <= frame + o < input.t for o in self.offsets) for frame in range(input.t)]
        self.adds = nn.ModuleList(FloatFunctional() for _ in range(sum(counts) - input.t))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adds = iter(self.adds)
        parts = []
        for frame in range(self.input.t):
            total, *terms = [
                conv(frames(x, frame + offset, frame + offset + 1, self.input))
                for conv, offset in zip(self.convs, self.offsets)
                if 0 <= frame + offset < self.input.t
            ]
            for term in terms:
                total = next(adds).add(total, term)  # type: ignore[operator]
            parts.append(total)
        return self.joined(parts)


def _shift(channels: int, offset: int, like: torch.Tensor) -> nn.Conv2d:
    """Moves frames by an offset, zeros coming in."""
    reach = abs(offset)
    weight = like.new_zeros(channels, 1, 2 * reach + 1, 1)
    weight[:, :, reach + offset] = 1
    return filled_conv(weight, None, channels, padding=(reach, 0))
