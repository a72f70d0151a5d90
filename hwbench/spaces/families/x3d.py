"""X3D: a stem, stages of bottlenecks whose depthwise convolution carries the kernel, a head as wide as the last stage.

Source: X3D (Feichtenhofer 2020, arXiv 2004.04730), tables 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from hwbench.spaces.axes import (
    Axis,
    activation,
    activations,
    count,
    counts,
    depth_series,
    depths,
    factors,
    kernel,
    kernels,
    one,
    ratios,
)
from hwbench.spaces.family import Ends, Family, Member, only
from hwbench.spaces.fields import Fields
from hwbench.spaces.stages import CLIP_CHANNELS, Stage, StageChoice
from hwbench.specs import GLOBAL, BlockSpec, Kernel, TensorSpec, format_kernel

_STEM_KERNEL: Kernel = ((1, 3, 3), (5, 1, 1))


def round_width(width: float, multiplier: float, minimum: int = 8, divisor: int = 8) -> int:
    """``width * multiplier`` as a multiple of ``divisor``, never more than 10 % below it (PySlowFast's rule)."""
    scaled = width * multiplier
    rounded = max(minimum, int(scaled + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * scaled else rounded


def mid_channels(choice: StageChoice) -> int:
    """Channels inside a bottleneck; cut off, not rounded, as X3D does: 2.25 x 24 = 54."""
    return int(choice["expansion"] * choice["width"])


@dataclass(frozen=True)
class Stem:
    """A spatial convolution with stride 2, then a depthwise one over time."""

    width: int
    kernel: Kernel
    act: str


@dataclass(frozen=True)
class Head:
    """A convolution to the inner width of the last stage, global pooling, a hidden layer, the classifier."""

    hidden: int
    act: str


@dataclass(frozen=True)
class X3dEnds(Ends):
    """Stem and head of X3D."""

    first: Stem
    last: Head

    def stem(self) -> BlockSpec:
        return BlockSpec(
            kind="stem",
            in_channels=CLIP_CHANNELS,
            out_channels=self.first.width,
            kernel=self.first.kernel,
            stride=2,
            activation=self.first.act,
        )

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        return _head(x.c, mid_channels(last), self.last.hidden, num_classes, self.last.act)

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first, "head": self.last}


class X3d(Family):
    """X3D and its neighbourhood.

    ``depth``: number of blocks. ``width``: channels between blocks. ``expansion``: channels inside a block by those
    between. ``kernel``: depthwise. ``se``: ratio of squeeze-excite in every other block from the first on, 0 = none.
    ``act``: behind the depthwise convolution; the other activations are ReLU. ``stride``: spatial, of the first block.
    """

    name = "x3d"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("expansion", factors),
        Axis("kernel", kernels),
        Axis("se", ratios),
        Axis("act", activations),
    )
    constants: ClassVar[tuple[Axis, ...]] = (Axis("stride", counts),)

    def ends(self, fields: Fields) -> X3dEnds:
        stem, head = fields.table("stem"), fields.table("head")
        ends = X3dEnds(
            Stem(count(stem, "width"), kernel(stem, "kernel"), activation(stem, "act")),
            Head(count(head, "hidden"), activation(head, "act")),
        )
        for name, expected in (("kernel", format_kernel(_STEM_KERNEL)), ("act", "relu")):
            if stem.text(name) != expected:
                raise stem.error(name, f"expected {expected}: stems of X3D have no other", stem.text(name))
        stem.done()
        head.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        return _stage(choice, x.c)

    def check(self, stage: Stage) -> tuple[str, str] | None:
        if any(mid_channels(choice) < 1 for choice in stage.choices):
            return "expansion", "expected at least one channel inside a block"
        return None

    def card(self, fields: Fields) -> Member:
        """Depths and widths by stage, everything else alike in all stages (table 3)."""
        blocks, widths = depth_series(fields, "depths"), fields.series("widths")
        if len(blocks) != len(widths):
            raise fields.error("widths", f"expected one width for each of {len(blocks)} depths", list(widths))
        alike = {
            "expansion": fields.number("expansion"),
            "kernel": kernel(fields, "kernel"),
            "se": one(ratios)(fields, "se"),
            "act": activation(fields, "act"),
            "stride": 2,
        }
        ends = X3dEnds(
            Stem(count(fields, "stem_width"), kernel(fields, "stem_kernel"), "relu"),
            Head(count(fields, "hidden"), "relu"),
        )
        stages = [only(self, {**alike, "depth": d, "width": w}) for d, w in zip(blocks, widths)]
        return Member(ends, tuple(stages))


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, in_channels: int) -> tuple[BlockSpec, ...]:
    mid = mid_channels(choice)
    reduced = round_width(mid, choice["se"]) if choice["se"] else 0
    first, gated, plain = (
        BlockSpec(
            kind="x3d",
            in_channels=channels,
            mid_channels=mid,
            out_channels=choice["width"],
            kernel=choice["kernel"],
            stride=stride,
            se_channels=se_channels,
            activation=choice["act"],
        )
        for channels, stride, se_channels in (
            (in_channels, choice["stride"], reduced),
            (choice["width"], 1, reduced),
            (choice["width"], 1, 0),
        )
    )
    return tuple(first if not index else plain if index % 2 else gated for index in range(choice["depth"]))


@lru_cache(maxsize=1 << 12)
def _head(in_channels: int, mid: int, hidden: int, num_classes: int, act: str) -> BlockSpec:
    return BlockSpec(
        kind="head",
        in_channels=in_channels,
        mid_channels=mid,
        hidden_channels=hidden,
        out_channels=num_classes,
        kernel=GLOBAL,
        activation=act,
    )
