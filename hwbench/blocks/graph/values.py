"""What stands for a tensor of the original model in the rewritten graph.

A tensor with five axes is always a ``Clip``: stored with frames as batch, whatever the order of its axes in the
original, so that a permutation costs nothing. Any other tensor is ``Plain``: stored as it is in the original. Values
that do not depend on the input are plain ``torch.Tensor``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn

from hwbench.specs import TensorSpec

NCTHW = "NCTHW"
# Axes of a folded clip from the slowest to the fastest, its first axis taken apart.
FOLDED = "NTCHW"
# The order of a clip whose last axis is stored as channels.
CHANNELS_LAST = "NTHWC"


@dataclass(frozen=True)
class Clip:
    """A folded clip (N·T, C, H, W).

    Attributes:
        node: In the rewritten graph.
        spec: Its sizes by axis.
        order: The axes in the order of the original.
    """

    node: fx.Node
    spec: TensorSpec
    order: str = NCTHW

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in the original."""
        return tuple(sizes(self.spec)[axis] for axis in self.order)


@dataclass(frozen=True)
class Plain:
    """A tensor of other than five axes; node in the rewritten graph, and shape."""

    node: fx.Node
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Unsplit(Plain):
    """A tensor of more axes than XNNPACK knows, stored with other axes in the same order of its values."""


# Axes of a tensor that XNNPACK takes (XNN_MAX_TENSOR_DIMS).
MAX_AXES = 6
Value = Clip | Plain | torch.Tensor


def sizes(spec: TensorSpec) -> dict[str, int]:
    """Sizes by letter."""
    return dict(zip(NCTHW, spec.shape, strict=True))


def spec_of(shape: Sequence[int], order: str = NCTHW) -> TensorSpec:
    """The sizes of a tensor whose axes stand in ``order``."""
    found = dict(zip(order, shape, strict=True))
    return TensorSpec(*(found[axis] for axis in NCTHW))


class Reorder(nn.Module):
    """A reshape, a permutation and a reshape, as few axes as possible."""

    def __init__(self, split: tuple[int, ...], permutation: tuple[int, ...], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.split, self.permutation, self.shape = split, permutation, shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.permutation != tuple(range(len(self.permutation))):
            x = x.reshape(self.split).permute(self.permutation)
        return x.reshape(self.shape)

    def extra_repr(self) -> str:
        return f"{self.split}, {self.permutation}, {self.shape}"


def reorder(spec: TensorSpec, source: str, target: str, shape: Sequence[int]) -> nn.Module:
    """The same values with their axes in another order, in a given shape.

    Axes of size 1 and neighbours that stay neighbours make no axis of their own: what needs no move is one reshape.
    """
    size = sizes(spec)
    long = [axis for axis in source if size[axis] > 1]
    wanted = [axis for axis in target if size[axis] > 1]
    groups: list[str] = []
    for axis in long:
        at = wanted.index(axis)
        if groups and at and wanted[at - 1] == groups[-1][-1]:
            groups[-1] += axis
        else:
            groups.append(axis)
    split = tuple(math.prod(size[axis] for axis in group) for group in groups)
    permutation = tuple(sorted(range(len(groups)), key=lambda index: wanted.index(groups[index][0])))
    return Reorder(split, permutation, tuple(shape))


class BlockSwaps(nn.Module):
    """A permutation of any number of axes as exchanges of neighbouring groups of axes, each of four axes.

    Args:
        shape: Of the tensor whose axes are permuted; what is given may have any shape.
        order: Of its axes.
    """

    def __init__(self, shape: Sequence[int], order: Sequence[int]) -> None:
        super().__init__()
        self.steps: list[tuple[int, int, int, int]] = []
        placed, rest = [axis for axis in range(len(shape)) if shape[axis] > 1], [a for a in order if shape[a] > 1]
        for place in range(len(rest)):
            at = placed.index(rest[place])
            if at == place:
                continue
            end = at + 1  # neighbours that stay neighbours move at once
            while end < len(placed) and place + end - at < len(rest) and placed[end] == rest[place + end - at]:
                end += 1
            groups = (placed[:place], placed[place:at], placed[at:end], placed[end:])
            first, second, third, last = (math.prod(shape[axis] for axis in group) for group in groups)
            self.steps.append((first, second, third, last))
            placed = [*groups[0], *groups[2], *groups[1], *groups[3]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = x.reshape(step).permute(0, 2, 1, 3)
        return x
