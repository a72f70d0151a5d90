"""Modules on folded clips (N·T, C, H, W), made only of operations that XNNPACK takes.

XNNPACK slices with step 1 only. Frames at a step are taken all the same: s frames above each other are a picture of
height s·H, which is a reshape that moves nothing in NHWC memory, and of it the rows of one frame are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.layout import clip_mean, frames, from_planes, to_planes
from hwbench.specs import TensorSpec


class Frames(nn.Module):
    """Of every clip the frames ``first``, ``first + step``, ..., ``count`` in all."""

    def __init__(self, spec: TensorSpec, first: int, step: int, count: int) -> None:
        super().__init__()
        self.spec, self.first, self.step, self.count = spec, first, step if count > 1 else 1, count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spec, step = self.spec, self.step
        if step == 1:
            return frames(x, self.first, self.first + self.count, spec)
        begin = min(self.first, spec.t - self.count * step)
        if self.first - begin < step and begin >= 0:
            return self._of_groups(x, begin, self.count)
        # the last group is not whole
        last = self.first + (self.count - 1) * step
        parts = [self._of_groups(x, self.first, self.count - 1), frames(x, last, last + 1, spec)]
        return joined(parts, spec.n)

    def _of_groups(self, x: torch.Tensor, begin: int, count: int) -> torch.Tensor:
        """One frame of each group of ``step``; groups start at ``begin``."""
        n, c, _, h, w = self.spec.shape
        place, step = self.first - begin, self.step
        x = frames(x, begin, begin + count * step, self.spec)
        x = x.reshape(n * count, step, c, h, w).permute(0, 2, 1, 3, 4).reshape(n * count, c, step * h, w)
        return x[:, :, place * h : (place + 1) * h]

    def extra_repr(self) -> str:
        return f"{self.spec}, first={self.first}, step={self.step}, count={self.count}"


def taken(spec: TensorSpec, first: int, step: int, count: int) -> nn.Module:
    """``Frames``, or nothing to do where all are taken."""
    return nn.Identity() if (first, count) == (0, spec.t) else Frames(spec, first, step, count)


def joined(parts: Sequence[torch.Tensor], n: int) -> torch.Tensor:
    """Folded clips one after the other in time; ``n`` is their batch."""
    if len(parts) == 1:
        return parts[0]
    if n == 1:
        return torch.cat(list(parts), 0)
    c, h, w = parts[0].shape[1:]
    return torch.cat([part.reshape(n, -1, c, h * w) for part in parts], 1).reshape(-1, c, h, w)


class Joined(nn.Module):
    """``joined`` as a module."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return joined(parts, self.n)


class Pad(nn.Module):
    """A constant round a clip; ``padding`` is (before, after) for each of C, T, H, W."""

    def __init__(self, spec: TensorSpec, padding: Sequence[tuple[int, int]], value: float = 0.0) -> None:
        super().__init__()
        self.spec, self.padding, self.value = spec, tuple(padding), value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        channels, time, *space = self.padding
        if any(map(any, (channels, *space))):
            x = F.pad(x, [*space[1], *space[0], *channels], value=self.value)
        if not any(time):
            return x
        if self.spec.n == 1:
            return F.pad(x, [0, 0, 0, 0, 0, 0, *time], value=self.value)
        _, c, h, w = x.shape
        x = F.pad(x.reshape(self.spec.n, self.spec.t, c, h * w), [0, 0, 0, 0, *time], value=self.value)
        return x.reshape(-1, c, h, w)


class OverTime(nn.Module):
    """A module on pictures (N, C, T, H·W): what it does to rows is done over time."""

    def __init__(self, module: nn.Module, input: TensorSpec, output: TensorSpec) -> None:
        super().__init__()
        self.module, self.input, self.output = module, input, output

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return from_planes(self.module(to_planes(x, self.input)), self.output)


class MeanOfClip(nn.Module):
    """Mean over T, H and W."""

    def __init__(self, spec: TensorSpec) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return clip_mean(x, self.spec)


class FrameMean(nn.Module):
    """Mean over H and W."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((-2, -1), keepdim=True)


class TapSum(nn.Module):
    """A convolution over time as a sum over its taps: ``y[t] = sum over k of taps[k](x[t·stride + offsets[k]])``.

    Every tap is one 2-D convolution, called once, on just the frames it sees; what lies outside of the clip is zero and
    drops out. Output frames that are seen by the same taps are summed together and put in a row.

    Args:
        taps: One convolution per temporal tap; one carries the bias, and it must see all output frames.
        offsets: Of the frame that a tap reads from the first frame of an output's stride.
        bias: Index of the tap with the bias.
        stride: Over time.
        input: Of the convolution.
        output: Of the convolution.
    """

    def __init__(self, taps: Sequence[nn.Module], offsets: Sequence[int], bias: int, stride: int,
                 input: TensorSpec, output: TensorSpec) -> None:  # fmt: skip
        super().__init__()
        self.output = output
        seen = [seen_by(offset, stride, input.t, output.t) for offset in offsets]
        order = sorted((k for k, frames in enumerate(seen) if frames), key=lambda k: (k != bias, k))
        self.ranges = [seen[k] for k in order]
        self.taps = nn.ModuleList(
            nn.Sequential(taken(input, seen[k].start * stride + offsets[k], stride, len(seen[k])), taps[k])
            for k in order
        )
        edges = sorted({0, output.t, *(frames.start for frames in self.ranges), *(f.stop for f in self.ranges)})
        self.segments = list(itertools.pairwise(edges))
        self.adds = nn.ModuleList(FloatFunctional() for _ in range(sum(len(self._seen(s)) - 1 for s in self.segments)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sums, adds = [tap(x) for tap in self.taps], iter(self.adds)
        parts = []
        for segment in self.segments:
            total, *terms = [self._part(sums[k], self.ranges[k], segment) for k in self._seen(segment)]
            for term in terms:
                total = next(adds).add(total, term)  # type: ignore[operator]
            parts.append(total)
        return joined(parts, self.output.n)

    def _seen(self, segment: tuple[int, int]) -> list[int]:
        """Indices of the taps that see all output frames of a segment."""
        return [k for k, seen in enumerate(self.ranges) if seen.start <= segment[0] and segment[1] <= seen.stop]

    def _part(self, y: torch.Tensor, seen: range, segment: tuple[int, int]) -> torch.Tensor:
        return frames(y, segment[0] - seen.start, segment[1] - seen.start, self.output.with_(t=len(seen)))


def seen_by(offset: int, stride: int, frames_in: int, frames_out: int) -> range:
    """The output frames t for which ``t·stride + offset`` is a frame of the input."""
    first = max(0, -(offset // stride)) if offset < 0 else 0
    last = min(frames_out, (frames_in - 1 - offset) // stride + 1)
    return range(first, max(first, last))
