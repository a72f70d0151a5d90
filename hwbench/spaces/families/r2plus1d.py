"""R(2+1)D: a stem, stages of bottlenecks whose convolution is one over time and then one over space, a linear head.

Source: Tran et al. 2018 (arXiv 1711.11248), table 1 and section 3.5; the bottlenecks are those of ResNet-50 (arXiv
1512.03385, table 1) as PyTorchVideo lays them out.
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
)
from hwbench.spaces.family import Ends, Family, Member, only
from hwbench.spaces.fields import Fields
from hwbench.spaces.stages import CLIP_CHANNELS, Stage, StageChoice
from hwbench.specs import GLOBAL, BlockSpec, Kernel, TensorSpec

_KERNEL: Kernel = ((3, 1, 1), (1, 3, 3))


@dataclass(frozen=True)
class Stem:
    """One convolution with a spatial stride."""

    width: int
    kernel: Kernel
    stride: int
    act: str


@dataclass(frozen=True)
class R2plus1dEnds(Ends):
    """Stem and head of R(2+1)D; the head has nothing to choose."""

    first: Stem

    def stem(self) -> BlockSpec:
        first = self.first
        return BlockSpec(
            kind="resnet-stem",
            in_channels=CLIP_CHANNELS,
            out_channels=first.width,
            kernel=first.kernel,
            stride=first.stride,
            activation=first.act,
        )

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        return BlockSpec("pool-head", x.c, num_classes, kernel=GLOBAL, activation="identity")

    def parts(self) -> Mapping[str, object]:
        return {"stem": self.first}


class R2plus1d(Family):
    """R(2+1)D and its neighbourhood.

    ``depth``: number of blocks. ``width``: channels between blocks. ``expansion``: channels inside a block by those
    between, 0.25 in ResNets. ``kernel``: over time, then over space. ``act``: every activation of the stage.
    ``temporal_stride``: step over frames in the first block. ``stride``: spatial, of the first block.
    """

    name = "r2plus1d"
    axes: ClassVar[tuple[Axis, ...]] = (
        Axis("depth", depths),
        Axis("width", counts),
        Axis("expansion", factors, 0.25),
        Axis("kernel", kernels, _KERNEL),
        Axis("act", activations, "relu"),
        Axis("temporal_stride", counts, 1),
    )
    constants: ClassVar[tuple[Axis, ...]] = (Axis("stride", counts, 2),)

    def ends(self, fields: Fields) -> R2plus1dEnds:
        stem = fields.table("stem")
        ends = R2plus1dEnds(
            Stem(count(stem, "width"), kernel(stem, "kernel"), count(stem, "stride"), activation(stem, "act"))
        )
        stem.done()
        return ends

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        return _stage(choice, x.c)

    def check(self, stage: Stage) -> tuple[str, str] | None:
        if any(_mid_channels(choice) < 1 for choice in stage.choices):
            return "expansion", "expected at least one channel inside a block"
        if any(len(one) != 2 or one[0][1:] != (1, 1) or one[1][0] != 1 for one in stage["kernel"]):
            return "kernel", "expected a kernel over time and one over space, as 3x1x1+1x3x3"
        return None

    def card(self, fields: Fields) -> Member:
        """Depths, widths and strides by stage, everything else alike in all stages."""
        blocks, names = depth_series(fields, "depths"), ("widths", "strides", "temporal_strides")
        widths, strides, steps = (fields.series(name) for name in names)
        for name, values in zip(names, (widths, strides, steps)):
            if len(values) != len(blocks):
                raise fields.error(name, f"expected one value for each of {len(blocks)} depths", list(values))
        alike = {
            "expansion": fields.number("expansion"),
            "kernel": kernel(fields, "kernel"),
            "act": activation(fields, "act"),
        }
        stem = Stem(
            count(fields, "stem_width"), kernel(fields, "stem_kernel"), count(fields, "stem_stride"), alike["act"]
        )
        stages = [
            only(self, {**alike, "depth": depth, "width": width, "stride": stride, "temporal_stride": step})
            for depth, width, stride, step in zip(blocks, widths, strides, steps)
        ]
        return Member(R2plus1dEnds(stem), tuple(stages))


def _mid_channels(choice: StageChoice) -> int:
    return int(choice["expansion"] * choice["width"])


@lru_cache(maxsize=1 << 14)
def _stage(choice: StageChoice, in_channels: int) -> tuple[BlockSpec, ...]:
    first, following = (
        BlockSpec.of(
            "r2plus1d",
            in_channels=channels,
            mid_channels=_mid_channels(choice),
            out_channels=choice["width"],
            kernel=choice["kernel"],
            stride=stride,
            temporal_stride=step,
            activation=choice["act"],
        )
        for channels, stride, step in (
            (in_channels, choice["stride"], choice["temporal_stride"]),
            (choice["width"], 1, 1),
        )
    )
    return (first, *[following] * (choice["depth"] - 1))
